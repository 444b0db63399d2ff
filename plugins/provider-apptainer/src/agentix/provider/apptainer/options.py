"""The options of Apptainer for one sandbox: decided here, as a list."""

from __future__ import annotations

import csv
import io
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import ProviderError
from agentix.provider.apptainer.images import OWN
from agentix.provider.kit import MOUNT

if TYPE_CHECKING:
    from agentix.provider.apptainer.config import ApptainerProviderConfig
    from agentix.provider.apptainer.images import Opened
    from agentix.provider.base import SandboxResource
    from agentix.provider.kit import CachedBundle, RuntimeFolder

_ISOLATION = (
    *("--pid", "--no-init", "--ipc", "--uts", "--cleanenv", "--no-eval", "--no-umask"),
    # /dev with the least in it, and nothing of the host's, whatever apptainer.conf mounts.
    *("--contain", "--no-home", "--no-mount", "home,tmp,cwd,hostfs,bind-paths"),
)
# A sandbox of root's is still root's to the kernel where that asks for a number only, as the
# files below /proc/sys do. The same places are closed in containers.
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_HIDDEN = (
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/proc/timer_stats",
)


def options_for(
    image: Opened,
    *,
    bundle: CachedBundle,
    folder: RuntimeFolder,
    limits: SandboxResource | None,
    config: ApptainerProviderConfig,
) -> list[str]:
    """Return the options that make *image* a sandbox with *bundle*, reached through *folder*.

    Makes what else that takes in *folder*.
    """
    options = [*_ISOLATION, "--hostname", folder.sandbox_id, *_user(config)]
    if config.network == "none":
        options += ["--net", "--network", "none"]
    if not config.read_only:
        options.append("--writable-tmpfs")
    options += _layer(image, folder, config)
    for place in filter(os.path.exists, _READ_ONLY):
        options += _mount(place, place, read_only=True)
    for place in filter(os.path.exists, _HIDDEN):
        options += _mount("/dev/null", place)
    options += _merged(bundle, folder) if image.stored else _alone(bundle)
    options += _mount(str(folder.mount), MOUNT)
    if limits is not None and limits.memory is not None:
        options += ["--memory", str(limits.memory)]
    if limits is not None and limits.cpu is not None:
        options += ["--cpus", f"{limits.cpu:g}"]
    return options


def user_of(config: ApptainerProviderConfig) -> int:
    """Return the number of the user as which a sandbox runs, as seen inside."""
    return 0 if config.fakeroot else os.getuid()


def _user(config: ApptainerProviderConfig) -> list[str]:
    if os.getuid() == 0:
        return ["--userns", "--no-privs"]
    if config.fakeroot:
        return ["--fakeroot", "--drop-caps", "all"]
    return ["--userns"]


def _layer(image: Opened, folder: RuntimeFolder, config: ApptainerProviderConfig) -> list[str]:
    """Lay over an image what it needs: names of hosts, and places that it lacks for mounts."""
    layer = folder.path / "layer"
    if ":" in str(layer):
        raise ProviderError(
            f"apptainer cannot use {layer}, since there is a colon in it; set XDG_RUNTIME_DIR"
        )
    missing = [name for name in OWN if image.folder and not (image.folder / name).exists()]
    for name in ("", "work", "upper", "upper/etc", *(f"upper/{name}" for name in missing)):
        place = layer / name
        place.mkdir()
        place.chmod(0o755)
    hosts = layer / "upper/etc/hosts"
    hosts.write_text(_hosts(folder, config), errors="surrogateescape")
    hosts.chmod(0o644)
    return ["--overlay", f"{layer}:ro"]


def _alone(bundle: CachedBundle) -> list[str]:
    return _mount(str(bundle.nix), "/nix", read_only=True)


def _merged(bundle: CachedBundle, folder: RuntimeFolder) -> list[str]:
    """Put the bundle's store paths beside those of the image, which live on as they are."""
    options = []
    for name in bundle.manifest.closure:
        source = bundle.nix / "store" / name
        if source.is_symlink():
            place = folder.path / "layer/upper/nix/store" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(source.readlink())
        else:
            options += _mount(str(source), f"/nix/store/{name}", read_only=True)
    runtime = bundle.nix / "store" / bundle.manifest.root / "runtime"
    return [*options, *_mount(str(runtime), "/nix/runtime", read_only=True)]


def _hosts(folder: RuntimeFolder, config: ApptainerProviderConfig) -> str:
    """Return the names that engines give: one's own, and with the host's network the host's."""
    text = "127.0.0.1\tlocalhost\n::1\tlocalhost\n"
    if config.network == "host":
        with suppress(OSError):
            text = Path("/etc/hosts").read_text(errors="surrogateescape")
    return f"{text.rstrip()}\n127.0.0.1\t{folder.sandbox_id}\n"


def _mount(source: str, place: str, *, read_only: bool = False) -> list[str]:
    """Return one mount in the form that takes any path."""
    row = io.StringIO()
    fields = ["type=bind", f"src={source}", f"dst={place}", *(["ro"] if read_only else [])]
    csv.writer(row, lineterminator="").writerow(fields)
    return ["--mount", row.getvalue()]
