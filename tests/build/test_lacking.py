from __future__ import annotations

import json
import lzma
from typing import TYPE_CHECKING

import pytest
from heard import Heard

from agentix.build.debian.index import INDEX_FORMAT, write_index
from agentix.build.lacking import tell_lacks
from agentix.errors import BundleError
from agentix.folders import cache_folder, writing

if TYPE_CHECKING:
    from pathlib import Path

SITE = "lib/python3.11/site-packages"


def lack(folder: Path, *lacks: tuple[str, str, str]) -> Path:
    items = [{"wheel": w, "file": f"{SITE}/{f}", "library": name} for w, f, name in lacks]
    (folder / "lacking.json").write_text(json.dumps(items))
    return folder


def tell(environment: Path, *, offline: bool = True) -> list[str]:
    heard = Heard()
    tell_lacks(environment, "bookworm", "linux/amd64", offline, heard)
    return heard.outcomes


def test_nothing_is_said_where_nothing_is_lacking(tmp_path: Path) -> None:
    assert tell(tmp_path) == []


def test_each_library_is_named_with_wheel_and_file_and_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    lacks = [
        ("cv-4.0", "cv2/cv2.so", "libGL.so.1"),
        ("cv-4.0", "cv2/gapi.so", "libGL.so.1"),
        ("jax-1.0", "gpu.so", "libcuda.so.1"),
    ]
    assert tell(lack(tmp_path, *lacks)) == [
        "warning: cv-4.0: cv2/cv2.so and 1 more need libGL.so.1, which nothing in the bundle "
        "has; add the Debian package that has it to [tool.agentix] system",
        "warning: jax-1.0: gpu.so needs libcuda.so.1, which nothing in the bundle has; it comes "
        "with the driver of a GPU, in images that have one",
    ]


def test_names_are_harmless_to_a_terminal(tmp_path: Path) -> None:
    (line,) = tell(lack(tmp_path, ("cv-4.0", "cv\x1b[31m2\n.so", "libGL.so.1")))
    assert line.startswith("warning: cv-4.0: cv\\x1b[31m2\\n.so needs libGL.so.1")


@pytest.mark.parametrize("text", ["", "{}", '[{"wheel": 1}]', "[" * 5000, '["\\udcff"]'])
def test_what_is_no_such_list_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "lacking.json").write_text(text)
    with pytest.raises(BundleError, match=r"cannot read .*lacking\.json") as caught:
        tell(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_package_is_looked_up_in_the_suite(tmp_path: Path) -> None:
    (line,) = tell(lack(tmp_path, ("cv-4.0", "cv2/cv2.so", "libGL.so.1")), offline=False)
    assert line.endswith('; add it: [tool.agentix] system = ["libgl1"]')


def test_an_index_that_is_there_is_asked_and_no_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    stanza = "Package: libgl1\nVersion: 1\nFilename: pool/x\nSHA256: 0\nSize: 1\n"
    file = cache_folder("debian") / f"bookworm-amd64-{INDEX_FORMAT}-{'0' * 64}.sqlite"
    with writing(file.parent):
        write_index(lzma.compress(stanza.encode()), file)
    environment = lack(tmp_path, ("cv-4.0", "cv2/cv2.so", "libGL.so.1"))
    for offline in (True, False):
        (line,) = tell(environment, offline=offline)
        assert line.endswith('; add it: [tool.agentix] system = ["libgl1"]')


def test_without_an_index_the_warning_says_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    (line,) = tell(lack(tmp_path, ("cv-4.0", "cv2/cv2.so", "libGL.so.1")), offline=False)
    assert line.endswith("add the Debian package that has it to [tool.agentix] system")


def test_many_are_counted(tmp_path: Path) -> None:
    lines = tell(lack(tmp_path, *(("a-1", "a.so", f"lib{n}.so") for n in range(9))))
    assert len(lines) == 6
    assert lines[-1] == "warning: 4 more libraries are lacking"
