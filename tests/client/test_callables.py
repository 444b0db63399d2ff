"""Which functions can be named across the border, and what the others are told."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest
from local_runtime import far

from agentix import RemoteCallable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (far.noop, "local_runtime.far::noop"),
        (far.anoop, "local_runtime.far::anoop"),
        (far.wrapped, "local_runtime.far::wrapped"),
        (far.awrapped, "local_runtime.far::awrapped"),
        (far.cached, "local_runtime.far::cached"),
        (far.Tools.static, "local_runtime.far::Tools.static"),
        (far.Tools.Inner.deep, "local_runtime.far::Tools.Inner.deep"),
        (far.numbers, "local_runtime.far::numbers"),
        (os.getpid, "posix::getpid"),
        (os.path.join, "posixpath::join"),
    ],
)
def test_importable_functions_have_a_name(function: Any, name: str) -> None:
    found = RemoteCallable.validate(function)
    assert found == name
    assert isinstance(found, str)
    assert (found.module, found.qualname) == tuple(name.split("::"))


def closure() -> Any:
    def inner() -> None: ...

    return inner


class Callable:
    def __call__(self) -> None: ...


class Disguised:
    __qualname__ = "noop"
    __module__ = "local_runtime.far"

    def __call__(self) -> None: ...


REFUSED: list[tuple[Any, str]] = [
    (lambda: None, "a lambda"),
    (closure(), "a closure"),
    (far.Tools().method, "a bound method"),
    (far.Tools.of_class, "a bound method"),
    ([].append, "a bound method"),
    (bytes.fromhex, "a bound method"),
    (functools.partial(far.noop, 1), "a partial"),
    (Callable(), "a callable object"),
    (far.Tools, "a class"),
    (int, "a class"),
    (5, "not callable"),
    (None, "not callable"),
    ("local_runtime.far::noop", "not callable"),
    (Disguised(), "a callable object"),
    (types.FunctionType(far.noop.__code__, {}, "noop"), "not"),
]


@pytest.mark.parametrize(("function", "rule"), REFUSED, ids=lambda value: str(value)[:20])
def test_other_callables_are_refused_with_the_rule_they_break(function: Any, rule: str) -> None:
    with pytest.raises(TypeError, match=rule) as caught:
        RemoteCallable.validate(function)
    assert "cannot call" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_means_something_else_by_now_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = far.noop
    monkeypatch.setattr(far, "noop", far.anoop)
    with pytest.raises(TypeError, match="not what"):
        RemoteCallable.validate(old)


SCRIPT = """
from agentix import RemoteCallable
def job(): pass
class Tools:
    @staticmethod
    def use(): pass
if __name__ == "__main__":
    try:
        print(RemoteCallable.validate(job), RemoteCallable.validate(Tools.use))
    except TypeError as error:
        print(error)
"""


def run(cwd: Path, *command: str, path: str = "") -> str:
    """Run a script and return what it printed."""
    environment = os.environ | {"PYTHONPATH": path}
    ran = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def project(root: Path, *parts: str, packages: bool = True) -> Path:
    """Write the script at a place in a project."""
    file = root.joinpath(*parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    if packages:
        for folder in file.parents:
            if folder == root or folder.name == "src":
                break
            (folder / "__init__.py").touch()
    file.write_text(SCRIPT)
    return file


def test_a_scripts_function_has_its_importable_name(tmp_path: Path) -> None:
    project(tmp_path, "main.py")
    assert run(tmp_path, "main.py") == "main::job main::Tools.use"
    assert run(tmp_path, "-m", "main") == "main::job main::Tools.use"
    assert run(tmp_path.parent, str(tmp_path / "main.py")) == "main::job main::Tools.use"


def test_a_script_in_a_package_is_named_with_its_package(tmp_path: Path) -> None:
    file = project(tmp_path, "src", "pkg", "sub", "main.py")
    src = str(tmp_path / "src")
    named = "pkg.sub.main::job pkg.sub.main::Tools.use"
    assert run(tmp_path, str(file), path=src) == named
    assert run(tmp_path / "src", "-m", "pkg.sub.main") == named
    project(tmp_path, "src", "pkg", "__main__.py")
    assert run(tmp_path / "src", "-m", "pkg") == "pkg.__main__::job pkg.__main__::Tools.use"


def test_a_script_in_a_namespace_package_too(tmp_path: Path) -> None:
    file = project(tmp_path, "src", "space", "main.py", packages=False)
    assert run(tmp_path, str(file), path=str(tmp_path / "src")).startswith("space.main::job")


def test_what_cannot_be_imported_by_any_name_is_refused(tmp_path: Path) -> None:
    refused = "defined in __main__, which the sandbox cannot import"
    file = project(tmp_path, "not-a-name.py")
    assert refused in run(tmp_path, str(file))
    assert refused in run(tmp_path, "-c", SCRIPT)
    assert refused in run(tmp_path, "-c", f"exec({SCRIPT!r})")
