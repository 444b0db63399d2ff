"""Names inside an image, followed as the kernel would if the image were the root."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from agentix.errors import ImageError

if TYPE_CHECKING:
    from pathlib import Path

_MOST_LINKS = 40


def resolve(root: Path, name: str, *, follow_last: bool = True) -> Path:
    """Return where *name* leads below *root*; links and ``..`` never lead out of it.

    No part of the result below *root* is a symbolic link, unless the last is and *follow_last* is
    false. It need not exist. Raises ImageError when links go round in circles.
    """
    todo = deque(_parts(name))
    done: list[str] = []
    links = 0
    while todo:
        part = todo.popleft()
        if part == "..":
            del done[-1:]
            continue
        candidate = root.joinpath(*done, part)
        if (todo or follow_last) and candidate.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise ImageError(f"{name!r} in image {root} is a link that leads round in circles")
            target = str(candidate.readlink())
            if target.startswith("/"):
                done = []
            todo.extendleft(reversed(_parts(target)))
        else:
            done.append(part)
    return root.joinpath(*done)


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]
