"""Whom the programs of an image run as."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.errors import ImageError
from agentix.provider.kit import plain, resolve

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.provider.kit import Image

_MAX_ID = 2**32 - 2
_MAX_DIGITS = 10
_MAX_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class User:
    """Numbers inside the sandbox, and the home folder that belongs to them."""

    uid: int
    gid: int
    home: str


def user_of(image: Image) -> User:
    """Return the user that *image* asks for: root if it does not, oneself on the host's root.

    A number needs no entry in passwd. Raises ImageError for a name that the image does not know.
    """
    if image.host:
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            home = "/"
        return User(os.getuid(), os.getgid(), home)
    name, _, group = (image.run.user or "").partition(":")
    name = name or "0"
    accounts = _table(image.root, "etc/passwd", 7)
    account = next((a for a in accounts if a[0] == name), None)
    if account is None and _is_number(name):
        account = next((a for a in accounts if a[2] == name), None)
    if account is not None and _is_number(account[2]) and _is_number(account[3]):
        uid, gid, home = int(account[2]), int(account[3]), account[5] or "/"
    elif _is_number(name):
        uid, gid, home = int(name), 0, "/"
    else:
        raise ImageError(
            f"image {image.label} runs as user {plain(name)!r}, which its passwd lacks"
        )
    if group:
        groups = _table(image.root, "etc/group", 4)
        number = next((g[2] for g in groups if g[0] == group), group)
        if not _is_number(number):
            raise ImageError(f"image {image.label} runs as group {plain(group)!r}, which it lacks")
        gid = int(number)
    if max(uid, gid) > _MAX_ID:
        raise ImageError(f"image {image.label} runs as user {name}:{group}, which is no number")
    return User(uid, gid, home)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def _table(root: Path, name: str, columns: int) -> list[list[str]]:
    path = resolve(root, name)
    try:
        if not path.is_file():  # also: a fifo would never end
            return []
        with path.open("rb") as file:
            text = file.read(_MAX_FILE).decode(errors="replace")
    except OSError:
        return []
    rows = [line.split(":") for line in text.splitlines()]
    return [row for row in rows if len(row) == columns]
