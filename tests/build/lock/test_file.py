from __future__ import annotations

import copy
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from agentix.build.lock import file as lock
from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHEEL = "demo_dep-1.0-py3-none-any.whl"
BACKEND = "hatchling-1.27.0-py3-none-any.whl"
DEB = "jq_1.6-2.1-deb12u1_amd64.deb"


def example() -> dict[str, Any]:
    return {
        "format": 1,
        "name": "hello-world",
        "version": "0.1.0",
        "inputs": "0" * 64,
        "toolchain": "debian-12",
        "python": "3.11",
        "projects": [
            {
                "name": "hello-world",
                "version": "0.1.0",
                "path": ".",
                "backend": {"linux/amd64": [BACKEND], "linux/arm64": [BACKEND]},
            },
            {"name": "agentix", "version": "0.1.0", "path": "../..", "backend": {}},
        ],
        "system": ["jq"],
        "platforms": {
            "linux/amd64": {"wheels": [WHEEL], "system": [DEB]},
            "linux/arm64": {"wheels": [], "system": [], "missing": "demo-dep has no wheel"},
        },
        "artifacts": {
            WHEEL: {"sha256": "a" * 64, "size": 10, "package": "demo-dep", "version": "1.0"},
            BACKEND: {"sha256": "b" * 64, "size": 11, "package": "hatchling", "version": "1.27.0"},
            DEB: {
                "sha256": "c" * 64,
                "size": 12,
                "package": "jq",
                "version": "1.6-2.1+deb12u1",
                "pool": "pool/main/j/jq/jq_1.6-2.1+deb12u1_amd64.deb",
            },
        },
    }


def test_saving_and_loading_gives_the_same_lock_in_sorted_readable_json(tmp_path: Path) -> None:
    file = tmp_path / "bundle.lock"
    made = lock.loads(json.dumps(example()))
    assert made.save(file)
    assert lock.load(file) == made
    text = file.read_text()
    assert text == json.dumps(example(), indent=2, sort_keys=True) + "\n"
    assert os.listdir(tmp_path) == ["bundle.lock"]  # noqa: PTH208


def test_saving_an_unchanged_lock_leaves_the_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "bundle.lock"
    made = lock.loads(json.dumps(example()))
    assert made.save(file)
    before = file.stat()
    assert not made.save(file)
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert file.stat().st_ino == before.st_ino


def test_the_file_is_as_readable_as_the_umask_says_which_other_threads_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bundle.lock"
    set_umask = os.umask
    old = set_umask(0o027)
    monkeypatch.delattr(os, "umask")
    try:
        lock.loads(json.dumps(example())).save(file)
    finally:
        set_umask(old)
    assert list(tmp_path.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def _put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        at: Any = data
        *parents, last = path.split("|")
        for key in parents:
            at = at[int(key) if key.isdigit() else key]
        at[last] = value

    return change


def _rename(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        data.update(json.loads(json.dumps(data).replace(old, new)))

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_put("format", 2), "format"),
        (_put("surprise", 1), "surprise"),
        (_put("name", "../../victim"), "name"),
        (_put("name", "Hello_World"), "normalised distribution name"),
        (_put("version", "1/2"), "version"),
        (_put("toolchain", "../x"), "toolchain"),
        (_put("python", "3.11.2"), "python"),
        (_put("inputs", "A" * 64), "inputs"),
        (_put("projects|1|path", "/etc"), "relative POSIX path"),
        (_put("projects|1|path", "a/../b"), "normalised path"),
        (_put("projects|0|path", "lib"), "the project itself"),
        (_put("projects|1|name", "hello-world"), "same name"),
        (_put("projects|0|backend", {"linux/amd64": ["x/../y.whl"]}), "plain file name"),
        (_put("projects|0|backend", {"linux/riscv64": []}), "riscv64"),
        (_put("platforms|linux/amd64|wheels", ["gone.whl"]), "'gone.whl' is not among"),
        (_put("platforms|linux/amd64|wheels", [".hidden"]), "plain file name"),
        (_put("platforms", {}), "platforms"),
        (_put(f"artifacts|{WHEEL}|sha256", "a" * 63), "sha256"),
        (_put(f"artifacts|{WHEEL}|size", 0), "size"),
        (_put(f"artifacts|{WHEEL}|size", "10"), "size"),
        (_put(f"artifacts|{WHEEL}|url", "https://example.org/x.whl"), "url"),
        (_put(f"artifacts|{DEB}|pool", "https://example.org/x.deb"), "relative POSIX path"),
        (_put(f"artifacts|{DEB}|pool", "../../etc/passwd"), "below the archive"),
        (_put(f"artifacts|{DEB}|file", WHEEL), f"{DEB!r} is the key of {WHEEL!r}"),
        (_put("system", ["jq; rm -rf /"]), "system"),
        (_put("version", "0.2.0"), "version: it is that of the project, 0.1.0"),
        (_put("system", ["ripgrep"]), "not what system declares"),
        (_put("system", []), "not what system declares"),
        (_put("platforms|linux/amd64|system", []), "not what system declares"),
        (_put("platforms|linux/amd64|wheels", [WHEEL, WHEEL]), "comes twice"),
        (_put("platforms|linux/amd64|wheels", [DEB]), "of the wrong kind"),
        (_put("platforms|linux/amd64|system", [WHEEL]), "of the wrong kind"),
        (_put("projects|0|backend|linux/amd64", [BACKEND, BACKEND]), "comes twice"),
        (_put("projects|0|backend|linux/amd64", [DEB]), "of the wrong kind"),
        (_put("platforms|linux/arm64|system", [DEB]), "for another platform"),
        (_rename(WHEEL, "x-1-cp311-cp311-manylinux2014_aarch64.whl"), "for another platform"),
    ],
)
def test_a_lock_that_is_not_what_it_should_be_is_refused_in_one_line_naming_the_key(
    change: Callable[[dict[str, Any]], None], says: str
) -> None:
    data = copy.deepcopy(example())
    change(data)
    with pytest.raises(LockError) as caught:
        lock.loads(json.dumps(data))
    message = str(caught.value)
    assert says in message
    assert "agentix lock" in message
    assert "\n" not in message


def test_two_artifacts_that_would_meet_in_the_store_are_refused() -> None:
    data = example()
    data["artifacts"]["a~b.whl"] = data["artifacts"]["a!b.whl"] = data["artifacts"][WHEEL]
    with pytest.raises(LockError, match="same name in the Nix store"):
        lock.loads(json.dumps(data))


def test_a_missing_lock_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="run `agentix lock` to write it"):
        lock.load(tmp_path / "bundle.lock")


def test_a_truncated_lock_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "bundle.lock"
    file.write_text(json.dumps(example())[:100])
    with pytest.raises(LockError, match="JSON"):
        lock.load(file)
