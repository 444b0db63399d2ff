from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"lib/python{PYTHON}/site-packages"


@pytest.fixture
def wheel(tmp_path: Path) -> Callable[..., Path]:
    """Make what an installed wheel looks like; plain names are modules."""

    def make(name: str, files: Mapping[str, str]) -> Path:
        root = tmp_path / f"{'0' * 32}-{name}"
        for file, content in files.items():
            path = root / (file if file.startswith((".", "bin/", "share/")) else f"{SITE}/{file}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            if path.parent.name == "bin":
                path.chmod(0o755)
        return root

    return make


@pytest.fixture
def join(tmp_path: Path, run_step: Callable[..., Any]) -> Callable[..., tuple[Path, str]]:
    """Join wheels into an environment of this very Python; give it and the build log."""
    toolchain = tmp_path / "toolchain"
    (toolchain / "bin").mkdir(parents=True)
    (toolchain / "bin/python3").symlink_to(Path(sys.executable).resolve())
    (toolchain / "toolchain.json").write_text(json.dumps({"python": "3.11.2"}))

    def run(*wheels: Path, linked: Path | None = None) -> tuple[Path, str]:
        config = {
            "python": PYTHON,
            "toolchain": str(toolchain),
            "busybox": "/nix/store/busybox",
            "linked": str(linked) if linked else None,
            "wheels": [str(wheel) for wheel in wheels],
        }
        done = run_step("environment.py", config, tmp_path / "environment")
        assert done.returncode == 0, done.stderr
        return tmp_path / "environment", done.stderr

    (tmp_path / "environment").mkdir()
    return run


def test_a_folder_of_one_wheel_is_one_link(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    one = wheel("one", {"one/__init__.py": "", "one/deep/er.py": "", "share/one/x": ""})
    root, log = join(one)
    assert (root / SITE / "one").readlink() == one / SITE / "one"
    assert (root / "share").readlink() == one / "share"
    assert not (root / SITE).is_symlink()
    assert log == ""


def test_namespace_packages_merge_at_any_depth(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    parts = [
        wheel("a", {"space/inner/a.py": "", "space/own_a/x.py": ""}),
        wheel("b", {"space/inner/b.py": "", "space/b.py": ""}),
        wheel("c", {"other/c.py": ""}),
    ]
    root, log = join(*parts)
    assert (root / SITE / "space/inner/a.py").is_symlink()
    assert (root / SITE / "space/own_a").is_symlink()
    code = "import space.inner.a, space.inner.b, space.b, space.own_a.x, other.c"
    subprocess.run([root / "libexec/python3", "-I", "-c", code], check=True)
    assert log == ""


def test_an_identical_file_is_fine_and_a_different_one_is_the_last(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    one = wheel("one", {"tests/__init__.py": "", "tests/data.py": "1", "LICENSE": "same"})
    two = wheel("two", {"tests/__init__.py": "", "tests/data.py": "2", "LICENSE": "same"})
    root, log = join(one, two)
    assert (root / SITE / "tests/data.py").read_text() == "2"
    differs = f"{SITE}/tests/data.py is in one, two, and differs; taking two's"
    assert log == f"agentix warning: {differs}\n"


def test_byte_code_comes_from_the_wheel_of_its_source(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    def compiled(name: str) -> str:
        return f"__pycache__/{name}.cpython-311.pyc"

    one = wheel("one", {"x.py": "1", compiled("x"): "of one", "y.py": "", compiled("y"): "y"})
    two = wheel("two", {"x.py": "2", "z.py": "", compiled("z"): "z"})
    root, _ = join(one, two)
    # Nothing of x: the last wheel's could not be compiled, and the first's is of other source.
    found = {path.name for path in (root / SITE / "__pycache__").iterdir()}
    assert found == {"y.cpython-311.pyc", "z.cpython-311.pyc"}


def test_a_folder_against_a_file_is_the_last(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    root, log = join(wheel("one", {"thing/x.py": ""}), wheel("two", {"thing": "file"}))
    assert (root / SITE / "thing").read_text() == "file"
    assert "thing is in one, two, and differs" in log


def test_packages_that_look_into_others_are_folders_throughout(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    root, _ = join(
        wheel("one", {".spread": "one\n", "one/lib/deep/a.so": "a", "plain/b.py": ""}),
        wheel("two", {"two/lib/b.so": "b"}),
    )
    assert not (root / SITE / "one/lib/deep").is_symlink()
    assert (root / SITE / "one/lib/deep/a.so").is_symlink()
    assert (root / SITE / "one/lib/deep/../../../two/lib/b.so").read_text() == "b"
    assert (root / SITE / "plain").is_symlink()
    assert not (root / ".spread").exists()


def test_scripts_start_the_environments_own_python(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    root, _ = join(
        wheel(
            "one",
            {
                "bin/script": "#!python -u\nprint('é')\n",
                "bin/window": "#!pythonw\npass\n",
                "bin/shell": "#!/bin/sh\n",
            },
        )
    )
    assert (root / "bin/script").read_text() == f"#!{root}/bin/python -u\nprint('é')\n"
    assert (root / "bin/window").read_text() == f"#!{root}/bin/python\npass\n"
    assert (root / "bin/shell").is_symlink()
    assert all(os.access(path, os.X_OK) for path in (root / "bin").iterdir() if path.exists())


def test_a_wheel_cannot_take_the_place_of_the_interpreter(
    wheel: Callable[..., Path], join: Callable[..., Any], tmp_path: Path
) -> None:
    hostile = wheel("one", {"bin/python": "#!/bin/sh\n"})
    (hostile / "pyvenv.cfg").write_text("home = /elsewhere\n")
    (hostile / "libexec").mkdir()
    (hostile / "libexec/python3").write_text("")
    root, _ = join(hostile)
    assert (root / "libexec/python3").readlink() == tmp_path / "toolchain/bin/python3"
    assert (hostile / "libexec/python3").read_text() == ""  # a store path, which stays as it is
    assert "/elsewhere" not in (root / "pyvenv.cfg").read_text()
    assert (root / "bin/python").read_text().startswith("#!/nix/store/busybox/bin/busybox sh\n")


def test_the_interpreter_knows_its_environment(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    root, _ = join(wheel("one", {"one.py": ""}))
    code = "import one, sys, sysconfig; print(sys.prefix, sysconfig.get_path('purelib'), sep='\\n')"
    command = [root / "libexec/python3", "-I", "-c", code]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == [str(root), str(root / SITE)]


def test_variables_are_put_back_only_where_the_runtime_is(
    wheel: Callable[..., Path], join: Callable[..., Any], tmp_path: Path
) -> None:
    files = {"agentix_runtime/aside.py": "print('aside')", "z.pth": "import agentix_runtime.z\n"}
    root, _ = join(wheel("runtime", {**files, "agentix_runtime/z.py": "print('z')"}))
    command = [root / "libexec/python3", "-I", "-c", ""]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.split() == ["aside", "z"], "before what any wheel starts with"


def test_without_the_runtime_nothing_is_put_back(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    root, _ = join(wheel("one", {"one.py": ""}))
    assert not list((root / SITE).glob("*.pth"))


def test_an_environment_of_nothing_works(join: Callable[..., Any]) -> None:
    root, _ = join()
    subprocess.run([root / "libexec/python3", "-I", "-c", ""], check=True)


def notes(lacks: Mapping[str, list[str]], offers: list[str]) -> str:
    return json.dumps({"lacks": lacks, "offers": offers})


def test_libraries_that_no_wheel_has_are_noted(
    wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    needs = {"site/one.so": ["libhad.so.1", "liblacks.so.2"]}
    one = wheel("one-1.0", {".libraries.json": notes(needs, ["one.so"])})
    two = wheel("two-1.0", {".libraries.json": notes({}, ["libhad.so.1"])})
    root, _ = join(one, two, wheel("three-1.0", {"three.py": ""}))
    assert json.loads((root / "lacking.json").read_text()) == [
        {"wheel": "one-1.0", "file": "site/one.so", "library": "liblacks.so.2"}
    ]
    assert not (root / ".libraries.json").exists()


@pytest.mark.parametrize("lacks", [{}, {"site/one.so": ["libnone.so.1"]}])
def test_what_a_wheel_brings_under_the_names_of_ours_is_not_believed(
    wheel: Callable[..., Path], join: Callable[..., Any], lacks: dict[str, list[str]]
) -> None:
    one = wheel("one-1.0", {".libraries.json": notes(lacks, [])})
    (one / "lacking.json").write_text('[{"wheel": "another"}]')
    two = wheel("two-1.0", {"agentix_runtime/aside.py": "", "00-agentix-aside.pth": "import evil"})
    root, _ = join(one, two)
    assert (root / "lacking.json").exists() == bool(lacks)
    if lacks:
        assert "another" not in (root / "lacking.json").read_text()
    assert (root / SITE / "00-agentix-aside.pth").read_text() == "import agentix_runtime.aside\n"
    assert (one / "lacking.json").read_text() == '[{"wheel": "another"}]'
    assert (two / SITE / "00-agentix-aside.pth").read_text() == "import evil"


def test_a_wheel_that_was_linked_is_taken_instead(
    tmp_path: Path, wheel: Callable[..., Path], join: Callable[..., Any]
) -> None:
    one = wheel("one-1.0", {"one.so": "as published", ".libraries.json": notes({"a": ["b"]}, [])})
    other = tmp_path / "linked/linked-one-1.0" / SITE
    other.mkdir(parents=True)
    (other / "one.so").write_text("with more to search")
    two = wheel("two-1.0", {"two.py": ""})
    root, _ = join(one, two, linked=tmp_path / "linked")
    assert (root / SITE / "one.so").read_text() == "with more to search"
    assert (root / SITE / "two.py").resolve() == two / SITE / "two.py"
    assert not (root / "lacking.json").exists()
