"""What a bundle is made of, item by item, as its manifest lists it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from agentix.validation import Strict

# Everything is printable ASCII on purpose: these texts reach terminals, logs and file names.
Text = Annotated[str, StringConstraints(pattern=r"^[!-~]([ -~]{0,198}[!-~])?$")]
Name = Annotated[
    str, StringConstraints(pattern=r"^[0-9A-Za-z]([0-9A-Za-z._-]{0,126}[0-9A-Za-z])?$")
]
FileName = Annotated[str, StringConstraints(pattern=r"^[!-.0-~]{1,255}$")]
Requirement = Annotated[str, StringConstraints(pattern=r"^[!-~]([ -~]{0,998}[!-~])?$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, le=2**53)]
Licences = Annotated[tuple[Text, ...], Field(max_length=64)]


class Package(Strict):
    """One Python distribution inside the bundle.

    ``sha256`` is its wheel's, if it came as one; otherwise ``built`` is that of the wheel that was
    built, and ``source`` that of the archive it was built from, if that was one. ``file`` and
    ``size`` (bytes) are the wheel's, ``licences`` what its metadata says in its own words, and
    ``requires`` those of its requirements that name something in the bundle.
    """

    name: Name
    version: Text
    sha256: Sha256 | None
    built: Sha256 | None = None
    source: Sha256 | None = None
    file: FileName | None = None
    size: Size | None = None
    licences: Licences = ()
    requires: tuple[Requirement, ...] = ()


class Needs(Strict):
    """What a plugin in the bundle has asked for: Debian packages, npm tools, a Nix file of its."""

    system: tuple[Text, ...] = ()
    npm: tuple[Text, ...] = ()
    nix: Text | None = None


class Tool(Strict):
    """One package of Debian or npm in the bundle; ``file``, ``sha256``, ``size`` are its archive's.

    ``licences`` are what the package says of itself, in its own words.
    """

    package: Text
    version: Text
    kind: Literal["deb", "npm", "nix"] = "deb"
    file: FileName | None = None
    sha256: Sha256 | None = None
    size: Size | None = None
    licences: Licences = ()


def item_name(item: Package | Tool) -> str:
    """Return what *item* is called."""
    return item.name if isinstance(item, Package) else item.package
