"""An ordinary Python project: what its pyproject.toml says that a bundle depends on."""

from __future__ import annotations

import fnmatch
import os
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentix.build.declared import Declared
from agentix.build.request import BUNDLE_NAME, LONGEST_NAME
from agentix.build.toml import parse_toml
from agentix.build.toolchain import DebianName, PythonMinor
from agentix.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PYPROJECT = "pyproject.toml"
LEGACY_BACKEND = "setuptools.build_meta:__legacy__"
LEGACY_REQUIRES = ("setuptools>=40.8.0", "wheel")  # PEP 517's, for a project that names no backend


_T = TypeVar("_T", bound=BaseModel)


class Settings(Declared):
    """The table ``[tool.agentix]``.

    ``build`` names the Debian packages that are there while C or C++ is compiled, and in no bundle.
    """

    build: list[DebianName] = Field(default_factory=list)
    name: Annotated[str, Field(pattern=BUNDLE_NAME, max_length=LONGEST_NAME)] | None = None
    python: PythonMinor | None = None


class _ProjectTable(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
    version: str | None = None
    dynamic: list[str] = []
    requires_python: Annotated[str, Field(alias="requires-python")] = ""
    dependencies: list[str] = []


class _BuildSystemTable(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    requires: list[str]
    build_backend: Annotated[str, Field(alias="build-backend")] = LEGACY_BACKEND
    backend_path: Annotated[list[str], Field(alias="backend-path")] = []


@dataclass(frozen=True, slots=True)
class Backend:
    """How the project is built: PEP 517's hooks, and what they need."""

    requires: tuple[str, ...]
    entry: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Project:
    """A source tree that a bundle is built from.

    ``version`` is None when the backend decides it, and ``name`` is None for a legacy project,
    which has only a setup.py. ``tables`` is all of its pyproject.toml.
    """

    root: Path
    name: str | None
    version: str | None
    requires_python: SpecifierSet
    dynamic: frozenset[str]
    backend: Backend
    settings: Settings
    tables: Mapping[str, Any]

    @property
    def file(self) -> Path:
        """The project's pyproject.toml."""
        return self.root / PYPROJECT

    @property
    def uv(self) -> Mapping[str, Any]:
        """The table ``[tool.uv]``; empty where there is none."""
        return self.tool("uv")

    def tool(self, name: str) -> Mapping[str, Any]:
        """Return the table ``[tool.<name>]``; empty where there is none."""
        tools = self.tables.get("tool")
        table = tools.get(name) if isinstance(tools, dict) else None
        return table if isinstance(table, dict) else {}

    def uv_sources(self, package: str) -> list[Mapping[str, Any]]:
        """Return where *package* comes from, as ``[tool.uv.sources]`` has it.

        What is not written as uv wants it is left out: uv says so when it is asked.
        """
        sources = self.uv.get("sources")
        for name, source in sources.items() if isinstance(sources, dict) else ():
            if canonicalize_name(name) == canonicalize_name(package):
                choices = source if isinstance(source, list) else [source]
                return [choice for choice in choices if isinstance(choice, dict)]
        return []


def read_project(root: Path) -> Project:
    """Return the project in the folder *root*.

    Raises ProjectError when it is not a project, has no ``[project]`` table, or says something
    that cannot be used; the message names the key at fault.
    """
    if not root.is_dir():
        raise ProjectError(f"{root} is not a folder; name the folder of a Python project")
    try:
        os.fspath(root.resolve()).encode()
    except UnicodeEncodeError:  # no plan and no lock could name it
        raise ProjectError(
            f"the path {os.fsencode(root)!r} is not UTF-8; rename the folder"
        ) from None
    if not (root / PYPROJECT).is_file():
        raise ProjectError(f"{root} is not a Python project: it has no {PYPROJECT}")
    project = read_tree(root)
    if project.name is None:
        raise ProjectError(
            f"{project.file} has no [project] table; add one with at least a name and a version"
        )
    if len(project.settings.name or project.name) > LONGEST_NAME:
        raise ProjectError(
            f"{project.file}: [project] name has more than {LONGEST_NAME} characters, which is too "
            'long for a bundle; give it another one: [tool.agentix] name = "..."'
        )
    if (nix := project.settings.nix) is not None and not (root / nix).is_file():
        raise ProjectError(f"{project.file}: [tool.agentix] nix = {nix!r}: there is no such file")
    return project


def read_tree(root: Path) -> Project:
    """Return what is known of the source tree *root*, which may be a legacy one (setup.py)."""
    file = root / PYPROJECT
    tables = _tables(file)
    project = _validated(file, "project", tables.get("project"), _ProjectTable)
    build = _validated(file, "build-system", tables.get("build-system"), _BuildSystemTable)
    tool = tables.get("tool")
    ours = tool.get("agentix") if isinstance(tool, dict) else None
    settings = _validated(file, "tool.agentix", ours, Settings) or Settings()
    dynamic = frozenset(project.dynamic) if project else frozenset({"version", "dependencies"})
    if project and project.version is None and "version" not in dynamic:
        raise ProjectError(f'{file}: [project] has no version; add one, or dynamic = ["version"]')
    return Project(
        root=root,
        name=canonicalize_name(project.name) if project else None,
        version=_version(file, project.version) if project and project.version else None,
        requires_python=_specifiers(file, project.requires_python if project else ""),
        dynamic=dynamic,
        backend=Backend(tuple(build.requires), build.build_backend, tuple(build.backend_path))
        if build
        else Backend(LEGACY_REQUIRES, LEGACY_BACKEND),
        settings=settings,
        tables=tables,
    )


def workspace_root(root: Path) -> Path:
    """Return the folder of the uv workspace that the project in *root* belongs to, else *root*."""
    for folder in (root, *root.parents):
        try:
            workspace = _tables(folder / PYPROJECT)["tool"]["uv"]["workspace"]
            members, exclude = workspace.get("members", []), workspace.get("exclude", [])
        except (KeyError, TypeError, AttributeError, ProjectError):
            continue
        inside = root.relative_to(folder).as_posix()
        if inside == "." or (_matches(inside, members) and not _matches(inside, exclude)):
            return folder
        break
    return root


def _matches(path: str, patterns: list[str]) -> bool:
    parts = path.split("/")
    return any(
        len(wanted) == len(parts) and all(map(fnmatch.fnmatchcase, parts, wanted))
        for wanted in (pattern.strip("/").removeprefix("./").split("/") for pattern in patterns)
    )


def _tables(file: Path) -> dict[str, Any]:
    try:
        return parse_toml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ProjectError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectError(f"{file} is not valid TOML: {error}") from error


def _validated(file: Path, name: str, table: object, model: type[_T]) -> _T | None:
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ProjectError(f"{file}: {name} = {table!r}: it must be a table, [{name}]")
    try:
        return model.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields)
            raise ProjectError(
                f"{file}: [{name}] has no setting {key!r} (it has: {known})"
            ) from error
        reason = re.sub(r"^String should match pattern .*", "it is not well-formed", first["msg"])
        raise ProjectError(f"{file}: [{name}] {key} = {first['input']!r}: {reason}") from error


def _version(file: Path, text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion as error:
        raise ProjectError(f"{file}: [project] version = {text!r} is not a version") from error


def _specifiers(file: Path, text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ProjectError(f"{file}: requires-python is not a version range: {text!r}") from error
