"""The environments of bundles, made once each.

In the cache::

    <cache>/uv/sha256-<hex>-<python>/    the virtual environment of the bundle of that digest
"""

from __future__ import annotations

import configparser
import hashlib
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import BundleError, ProviderError
from agentix.provider.kit import cache_root, hold, remove, what_to_do

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.provider.kit import CachedBundle
    from agentix.provider.uv.program import Uv

_STORE = "/nix/store/"
_ENTRY = re.compile(r"([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*\])?")
# What every program of a bundle does first: see agentix_runtime.aside.
_ASIDE = "00-agentix-aside.pth"
_SCRIPT = """\
#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
import sys
from {module} import {name}
sys.exit({call}())
"""


@dataclass(frozen=True, slots=True)
class Environments:
    """Has *uv* make environments below *cache*, the user's if not given.

    *python* is the interpreter to take.
    """

    uv: Uv
    cache: Path | None
    python: Path | None

    def open(self, bundle: CachedBundle) -> Path:
        """Return the environment of *bundle*. Blocks, for as long as making it takes.

        Raises ProviderError when it cannot be made, BundleError when the bundle is not sound.
        """
        cache = (self.cache or cache_root()).absolute()
        minor = ".".join(bundle.manifest.python.split(".")[:2])
        chosen = hashlib.sha256(os.fsencode(self.python or "")).hexdigest()[:8]
        name = f"sha256-{bundle.digest}-{minor}" + (f"-{chosen}" if self.python else "")
        made = cache / "uv" / name
        try:
            if _is_whole(made):
                return made
            key = f"uv-{name[7:39]}-{chosen}"
            with hold(cache / "staging", key, check=self.uv.stop.check) as folder:
                if not _is_whole(made):  # nobody else has made it meanwhile
                    draft = folder / "environment"
                    self._make(bundle, draft, str(self.python or minor), folder)
                    made.parent.mkdir(parents=True, exist_ok=True)
                    remove(made)  # one whose interpreter is gone
                    draft.rename(made)
                    made.chmod(0o555)  # not before: it takes that permission to move a folder
        except OSError as error:
            raise ProviderError(
                f"the environment of bundle {bundle.manifest.title} cannot be made in {cache}: "
                f"{error.strerror or error}; {what_to_do(error)}"
            ) from error
        return made

    def _make(self, bundle: CachedBundle, draft: Path, python: str, folder: Path) -> None:
        title = bundle.manifest.title
        venv = ["venv", "--no-project", "--relocatable", "--python", python, str(draft)]
        what = f"no virtual environment for bundle {title}, which needs Python {python}"
        self.uv.run(venv, what=what)
        pinned = folder / "requirements.txt"
        pinned.write_text(
            "".join(
                f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
                for package in bundle.manifest.packages
                if package.sha256 is not None
            )
        )
        if pinned.stat().st_size:
            # Copies: what a task does to them must not reach uv's own cache.
            install = ["pip", "install", "--python", f"{draft}/bin/python", "--link-mode", "copy"]
            install += ["--require-hashes", "--no-deps", "--no-build", "--compile-bytecode"]
            what = f"the packages of bundle {title} cannot be had"
            self.uv.run([*install, "--requirements", str(pinned)], what=what)
        packages = next((draft / "lib").glob("python*/site-packages"))
        for project in bundle.manifest.packages:
            if project.sha256 is None:
                _add_project(bundle, f"{project.name}-{project.version}", packages, draft / "bin")
        (packages / _ASIDE).write_text("import agentix_runtime.aside\n")
        _close(draft)


def _is_whole(made: Path) -> bool:
    """Tell whether the environment is there, and its interpreter, which is the machine's."""
    return (made / "bin/python").exists()


def _add_project(bundle: CachedBundle, name: str, packages: Path, programs: Path) -> None:
    """Copy a project out of *bundle*, where its environment has nothing but links to it."""
    wanted = _normal(name)
    environment = _inside(bundle, f"{_STORE}{bundle.manifest.root}/runtime/environment")
    for info in environment.glob("lib/python*/site-packages/*.dist-info"):
        if _normal(info.name.removesuffix(".dist-info")) == wanted:
            break
    else:
        raise BundleError(f"bundle {bundle.manifest.title} does not hold its project {name}")
    source = _inside(bundle, str(info)) if info.is_symlink() else info
    for entry in source.parent.iterdir():
        target = packages / entry.name
        if entry.is_dir():
            shutil.copytree(entry, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(entry, target, follow_symlinks=False)
    for script, text in _scripts(source):
        program = programs / script
        if program.is_symlink():  # which leads to the machine's own interpreter
            raise BundleError(
                f"project {name} of bundle {bundle.manifest.title} has a script {script!r}, which"
                " would take the interpreter's place; call it something else"
            )
        program.write_text(text)
        program.chmod(0o755)


def _inside(bundle: CachedBundle, link: str) -> Path:
    """Return where in the cache a link into the store leads."""
    path = Path(link)
    target = str(path.readlink()) if path.is_symlink() else link
    if target.startswith(_STORE):
        path = bundle.nix / "store" / target.removeprefix(_STORE)
        if path.is_symlink():
            return _inside(bundle, str(path))
    return path


def _scripts(info: Path) -> Iterator[tuple[str, str]]:
    """Yield the console scripts of the distribution with that *info*."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are as they are
    with suppress(FileNotFoundError, configparser.Error):
        parser.read_string((info / "entry_points.txt").read_text())
        section = parser["console_scripts"] if parser.has_section("console_scripts") else {}
        for script, value in section.items():
            match = _ENTRY.fullmatch(value.strip())
            if match and "/" not in script:
                module, call = match[1], match[2]
                name = call.partition(".")[0]
                yield script, _SCRIPT.format(module=module, name=name, call=call)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _close(draft: Path) -> None:
    """Take away the permission to write, so that no task installs something for the next ones."""
    for folder, _, files in os.walk(draft):
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o555)
        if folder != str(draft):
            Path(folder).chmod(0o555)
