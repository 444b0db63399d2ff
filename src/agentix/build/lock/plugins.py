"""Plugins: what the distributions of a bundle declare that they need, read without running them.

A distribution that has entry points of the group ``agentix.system`` is a plugin. The value of one
is a package of it, and that package's ``agentix.toml`` has the settings that a project's own
``[tool.agentix]`` may have: ``system``, ``npm`` and ``nix``.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from typing import TYPE_CHECKING

from pydantic import ValidationError

from agentix.build.declared import Declared
from agentix.build.sources import source_files
from agentix.build.toml import parse_toml
from agentix.errors import LockError
from agentix.validation import first_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from agentix.build.project import Project

GROUP = "agentix.system"
FILE = "agentix.toml"
# An object reference, as the entry point specification has it: a module, an attribute, extras.
_MODULE = re.compile(
    r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*(?::[\w.]+)?\s*(?:\[[^\]]*\])?", re.ASCII
)


def tree_needs(name: str, tree: Project) -> Declared:
    """Return what the source tree of the distribution *name* declares in its pyproject.toml."""
    modules = modules_of(name, _table(tree))
    if not modules:
        return Declared()
    files = source_files(tree.root)

    def read(path: str) -> bytes | None:
        places = [file for file in files if f"/{file}".endswith(f"/{path}")]
        return (tree.root / min(places, key=len)).read_bytes() if places else None

    return declared_by(name, modules, read, files)


def declaring_files(tree: Project) -> list[str] | None:
    """Return the files of a source tree that its declaration is read from, None if it has none."""
    entries = _table(tree)
    if not entries:
        return None
    paths = [f"/{module.replace('.', '/')}/{FILE}" for module in modules_of("", entries)]
    return [f for f in source_files(tree.root) if any(f"/{f}".endswith(path) for path in paths)]


def _table(tree: Project) -> dict[str, object]:
    project = tree.tables.get("project")
    groups = project.get("entry-points") if isinstance(project, dict) else None
    table = groups.get(GROUP) if isinstance(groups, dict) else None
    return table if isinstance(table, dict) else {}


def modules_of(package: str, entries: Mapping[str, object]) -> list[str]:
    """Return the packages that the entry points *entries* of a plugin name."""
    found = []
    for name, value in sorted(entries.items()):
        known = _MODULE.fullmatch(str(value).strip())
        if known is None:
            raise LockError(
                f"the plugin {package} has the entry point {name} = {value!r} in {GROUP}, "
                f"which must name a package of it that has a file {FILE}"
            )
        found.append(known[1])
    return found


def declared_by(
    package: str,
    modules: Iterable[str],
    read: Callable[[str], bytes | None],
    files: Collection[str],
) -> Declared:
    """Return all that the *modules* declare together; files are relative to site-packages."""
    system: dict[str, None] = {}
    npm: dict[str, None] = {}
    nix: dict[str, None] = {}
    for module in dict.fromkeys(modules):
        folder = module.replace(".", "/")
        path = f"{folder}/{FILE}"
        data = read(path)
        if data is None:
            raise LockError(
                f"the plugin {package} says in {GROUP} that {module} declares what it needs, "
                f"but it has no file {path}; a release of it that has one is needed"
            )
        one = _parsed(f"the {path} of the plugin {package}", data)
        system |= dict.fromkeys(one.system)
        npm |= dict.fromkeys(one.npm)
        if one.nix is not None:
            where = posixpath.join(folder, one.nix)
            if not any(f"/{file}".endswith(f"/{where}") for file in files):
                raise LockError(
                    f"the plugin {package} declares nix = {one.nix!r} but has no {where}"
                )
            nix[where] = None
    if len(nix) > 1:
        raise LockError(f"the plugin {package} declares two Nix files: {', '.join(nix)}")
    return Declared(system=list(system), npm=list(npm), nix=next(iter(nix), None))


def _parsed(what: str, data: bytes) -> Declared:
    try:
        return Declared.model_validate(parse_toml(data.decode("utf-8")))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LockError(f"{what} is not valid TOML: {error}") from error
    except ValidationError as error:
        raise LockError(f"{what} cannot be used: {first_fault(error)}") from error
