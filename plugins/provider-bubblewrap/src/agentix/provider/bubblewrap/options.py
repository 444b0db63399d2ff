"""The options of bubblewrap for one sandbox: decided here, as a list."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import ImageError
from agentix.provider.bubblewrap.layout import OWN, Bind, Folder, Link, Overlay
from agentix.provider.bubblewrap.merging import compose
from agentix.provider.bubblewrap.user import user_of
from agentix.provider.kit import MOUNT, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentix.provider.bubblewrap.config import BubblewrapProviderConfig
    from agentix.provider.bubblewrap.layout import Mounts, Piece
    from agentix.provider.bubblewrap.user import User
    from agentix.provider.kit import CachedBundle, Image, RuntimeFolder

WORKING_FOLDER = "AGENTIX_ASIDE_PWD"
"""PWD under a name that the bundle's Python takes away again: bubblewrap sets the plain one."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

ISOLATION = (
    *("--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
    *("--unshare-pid", "--as-pid-1", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    "--new-session",
)
# A sandbox of root's is still root's to the kernel where that asks for a number only, as the
# files below /proc/sys do. The same places are closed in containers.
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_HIDDEN_FILES = (
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/proc/timer_stats",
)
_HIDDEN_FOLDERS = ("/proc/acpi", "/proc/scsi", "/sys/firmware")


@dataclass(frozen=True, slots=True)
class Content:
    """In place of an option: a descriptor from which *text* can be read."""

    text: str


def options_for(
    image: Image,
    *,
    bundle: CachedBundle,
    folder: RuntimeFolder,
    added: Mapping[str, str] | None,
    config: BubblewrapProviderConfig,
    mounted: Mounts,
) -> list[str | Content]:
    """Return the options that make *image* a sandbox with *bundle*.

    It is reached through *folder*; *added* goes on top of the image's environment. Raises
    ImageError when the image cannot take what a sandbox needs.
    """
    user = user_of(image)
    environment = _environment(image, user, added)
    _check(image)
    workdir = f"/{(image.run.working_dir or '').lstrip('/')}"
    root = compose(image, bundle, mounted)
    options: list[str | Content] = [*ISOLATION, "--uid", str(user.uid), "--gid", str(user.gid)]
    if not image.host:  # whose own name is in its own /etc/hosts
        options += ["--hostname", folder.sandbox_id]
    if config.network == "none":
        options.append("--unshare-net")
    for piece in root.pieces:
        options += _piece(piece)
    options += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys"]
    options += _closed()
    options += _names(image, folder, config)
    for part in root.nix:
        options += [part] if isinstance(part, str) else _piece(part)
    options += ["--bind", str(folder.mount), MOUNT]
    options += _working_folder(image, workdir)
    if config.read_only:
        pieces = (*root.pieces, *root.nix)
        places = {piece.place for piece in pieces if isinstance(piece, Overlay)}
        for place in sorted(places | {"/"} | ({"/nix"} if root.fresh else set())):
            options += ["--remount-ro", place]
    for name, value in environment.items():
        options += ["--setenv", WORKING_FOLDER if name == "PWD" else name, value]
    return [*options, "--chdir", workdir]


def _environment(image: Image, user: User, added: Mapping[str, str] | None) -> dict[str, str]:
    """Return the image's environment as an engine would give it, and *added*.

    Nothing of the host's own environment is in it.
    """
    environment = {"PATH": PATH, "HOME": user.home}
    for entry in image.run.env or ():
        name, separator, value = entry.partition("=")
        if name and separator:
            environment[name] = value
    return environment | dict(added or {})


def _piece(piece: Piece) -> list[str]:
    match piece:
        case Overlay(source, place):
            return ["--overlay-src", source, "--tmp-overlay", place]
        case Bind(source, place):
            return ["--ro-bind-try", source, place]
        case Folder(place, mode):
            return ["--perms", f"{mode:o}", "--dir", place]
        case Link(target, place):
            return ["--symlink", target, place]


def _closed() -> list[str]:
    options = []
    for place in _READ_ONLY:
        options += ["--ro-bind-try", place, place]
    for place in filter(os.path.exists, _HIDDEN_FILES):
        options += ["--dev-bind", "/dev/null", place]
    for place in filter(os.path.isdir, _HIDDEN_FOLDERS):
        options += ["--tmpfs", place, "--remount-ro", place]
    return options


def _check(image: Image) -> None:
    """Refuse an image that has something of its own where a sandbox gets something else."""
    for name in sorted(OWN if not image.host else ()):
        place = image.root / name
        # bubblewrap would follow a link while it can still see the host.
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise ImageError(f"image {image.label} has a /{name} that is no folder")


def _names(
    image: Image, folder: RuntimeFolder, config: BubblewrapProviderConfig
) -> list[str | Content]:
    """Give look-ups of names what engines give them: localhost, and the host's resolver."""
    if image.host:
        return []
    options: list[str | Content] = []
    hosts = resolve(image.root, "/etc/hosts")
    if not hosts.is_file() or not hosts.stat().st_size:
        names = Content(f"127.0.0.1\tlocalhost {folder.sandbox_id}\n::1\tlocalhost\n")
        options += ["--perms", "0644", "--bind-data", names, _file(image, "/etc/hosts")]
    resolver = os.path.realpath("/etc/resolv.conf")
    if config.network == "host" and Path(resolver).is_file():
        options += ["--ro-bind", resolver, _file(image, "/etc/resolv.conf")]
    return options


def _working_folder(image: Image, workdir: str) -> list[str]:
    """Make the working folder, as engines do, where the image lacks it."""
    place = resolve(image.root, workdir)
    if place.is_dir():
        return []
    if place.exists():
        raise ImageError(f"image {image.label} has a working folder {workdir} that is no folder")
    return ["--dir", _place(image, workdir)]


def _file(image: Image, name: str) -> str:
    """Return the place of a file that is put over the image's, or made where that has none."""
    place = resolve(image.root, name)
    parent = place.parent
    if not place.exists() and parent.is_dir():
        # In a layer on top, too, a folder belongs to whom it belongs below.
        mine = os.geteuid() in (0, parent.stat().st_uid)
        if not mine and not os.access(parent, os.W_OK, effective_ids=True):
            raise ImageError(
                f"image {image.label} has no {name}, and only the owner of {parent} may make one;"
                " have an empty one made there, or give a tar of the image"
            )
    return _place(image, name)


def _place(image: Image, name: str) -> str:
    """Return *name* as a path in the sandbox without any link in it."""
    return f"/{resolve(image.root, name).relative_to(image.root)}"
