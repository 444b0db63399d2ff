"""Programs that are scripts, made to start the interpreters that came along, with their modules.

Without one of its own, a script for /bin/sh runs in the bundle's static shell: an image may have
none, and that shell has the usual small programs (sed, grep) in itself. A Python script runs on
the toolchain's Python, in an environment of the packages' modules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import bytecode
from tree import files, inside

if TYPE_CHECKING:
    from pathlib import Path

_PYTHON = re.compile(r"python3(\.[0-9]+)?")
SHELL = "libexec/sh"
_ENVIRONMENT = "libexec/python"


class Interpreters:
    """What starts the scripts of *tree*: what is in it, the *busybox* and the *toolchain*."""

    def __init__(self, tree: Path, toolchain: Path, python: str, busybox: Path) -> None:
        self._tree = tree
        self._toolchain = toolchain
        self._version = python
        self._busybox = busybox

    def own(self) -> None:
        """Make every script start what is here, where it is."""
        for path in files(self._tree):
            with path.open("rb") as file:
                if file.read(2) != b"#!":
                    continue
            first, newline, rest = path.read_bytes().partition(b"\n")
            words = first[2:].decode("utf-8", "replace").split(None, 1)
            if words and (line := self._line(*words)) is not None:
                mode = path.stat().st_mode
                path.chmod(mode | 0o200)
                path.write_bytes(f"#!{line}".encode() + newline + rest)
                path.chmod(mode)

    def shell(self) -> Path:
        """Return a program that is the static shell, by its name."""
        path = self._tree / SHELL
        if not path.is_symlink():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(self._busybox / "bin/busybox")
        return path

    def _line(self, program: str, argument: str = "") -> str | None:
        argument = argument.strip()
        if program.endswith("/env"):  # /usr/bin/env perl
            name, _, argument = argument.partition(" ")
            if not re.fullmatch(r"[\w.+-]+", name):
                return None
            program = f"/usr/bin/{name}"
        name = program.rpartition("/")[2]
        here = inside(self._tree, program)
        if here is not None:
            return f"{here} {argument}".rstrip()
        if name == "sh":
            return f"{self.shell()} {argument}".rstrip()
        if _PYTHON.fullmatch(name) and name in {"python3", f"python{self._version}"}:
            # Not the image's modules and variables: one argument is all that the kernel passes on.
            more = argument[1:] if re.fullmatch(r"-[A-Za-z]+", argument) else ""
            letters = "".join(dict.fromkeys(f"Es{more.replace('I', '')}"))
            return f"{self._python()} -{letters}"
        return None

    def _python(self) -> Path:
        root = self._tree / _ENVIRONMENT
        program = root / "bin/python3"
        if not program.is_symlink():
            modules = self._tree / "lib/python3/dist-packages"
            site = root / f"lib/python{self._version}/site-packages"
            program.parent.mkdir(parents=True)
            program.symlink_to(self._toolchain / "bin/python3")
            site.parent.mkdir(parents=True)
            site.symlink_to(modules)
            (root / "pyvenv.cfg").write_text(
                f"home = {self._toolchain}/bin\ninclude-system-site-packages = false\n"
            )
            if modules.is_dir():
                bytecode.compile_tree(modules, f"{modules}/")
        return program
