"""What a build is asked for, checked before anything is read or written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from agentix import platforms
from agentix.errors import ProjectError

BUNDLE_NAME = r"^[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*$"
_FILE = ".tar"
_COMPRESSED = ".tar.zst"
NIXPKGS = "AGENTIX_NIXPKGS"  # a folder with another nixpkgs than the pinned one
LONGEST_NAME = 128  # what a manifest admits


@dataclass(frozen=True, slots=True)
class Request:
    """One build: of the project in ``root``, for ``platform``.

    ``name`` overrides the bundle's name, ``output`` is where to write, ``python`` a minor version.
    ``compress`` says whether the tar is compressed with zstd, which the bundle's digest ignores.
    ``nixpkgs`` is a folder to take instead of the pinned nixpkgs.
    """

    root: str
    platform: platforms.PlatformName
    name: str | None = None
    output: str | None = None
    python: str | None = None
    compress: bool = False
    nixpkgs: str | None = None

    @classmethod
    def of(
        cls,
        root: Path,
        *,
        output: Path | None = None,
        name: str | None = None,
        platform: str | None = None,
        python: str | None = None,
        compress: bool | None = None,
    ) -> Request:
        """Return the request in these words; ProjectError names the one that cannot be.

        With *compress* None, the name of the *output* decides.
        """
        if name is not None and not (re.fullmatch(BUNDLE_NAME, name) and len(name) <= LONGEST_NAME):
            raise ProjectError(
                f"a bundle cannot be called {name!r}; use letters and digits, with single "
                f"'-', '_' or '.' between them, at most {LONGEST_NAME} characters"
            )
        try:
            chosen = platforms.parse(platform) if platform else platforms.current()
        except ValueError as error:
            raise ProjectError(str(error)) from error
        where = None if output is None else os.path.abspath(output)  # noqa: PTH100 - no links
        packed = _is_compressed(output, compress)
        return cls(str(root.resolve()), chosen.name, name, where, python, packed, _nixpkgs())

    def destination(self, name: str, version: str) -> Path:
        """Return the file to write: what was asked for, when that is a tar, else in a folder.

        The default folder is ``dist`` in the project.
        """
        where = Path(self.output or Path(self.root, "dist"))
        suffix = _COMPRESSED if self.compress else _FILE
        if where.name.endswith(suffix) and not where.is_dir():
            return where
        return where / f"{name}-{version}-{self.platform.replace('/', '-')}.bundle{suffix}"


def _nixpkgs() -> str | None:
    folder = os.environ.get(NIXPKGS)
    if not folder:
        return None
    if not Path(folder, "default.nix").is_file():
        raise ProjectError(f"{NIXPKGS} is {folder}, which has no default.nix; unset it or mend it")
    return str(Path(folder).resolve())


def _is_compressed(output: Path | None, compress: bool | None) -> bool:
    """Tell whether to compress; ProjectError when the name of *output* would say otherwise."""
    named = None
    if output is not None and output.name.endswith((_FILE, _COMPRESSED)) and not output.is_dir():
        named = output.name.endswith(_COMPRESSED)
    if named is not None and compress is not None and named is not compress:
        wanted = _COMPRESSED if compress else _FILE
        raise ProjectError(
            f"--output {output} does not end in {wanted}, as what --compress asks for is called;"
            " change one of them"
        )
    return bool(named or compress)
