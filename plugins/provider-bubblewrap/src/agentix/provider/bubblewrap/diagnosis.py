"""What a failed start of bubblewrap means, in words that help."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.provider.base import Finding
from agentix.provider.bubblewrap.options import ISOLATION
from agentix.provider.bubblewrap.program import find_program, version_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATIENCE = 6.0  # seconds
_SETTINGS = {
    "kernel.unprivileged_userns_clone": "1",
    "kernel.apparmor_restrict_unprivileged_userns": "0",
}
_INSTEAD = "or use another provider, such as docker"


def diagnose(chosen: Path | None) -> Iterable[Finding]:
    """Say which bubblewrap there is, and try whether it makes what a sandbox is made of."""
    program = find_program(chosen)
    with tempfile.TemporaryDirectory(prefix="agentix-") as folder:
        command = [str(program), *ISOLATION, "--unshare-net", "--ro-bind", "/", "/"]
        command += ["--proc", "/proc", "--dev", "/dev"]
        command += ["--overlay-src", folder, "--tmp-overlay", folder, "--", "true"]
        tried = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    if tried.returncode != 0:
        said = tried.stderr.strip() or f"exit status {tried.returncode}"
        yield Finding("problem", explain(tried.stderr) or f"bubblewrap failed: {said}")
    else:
        yield Finding("ok", f"{version_of(program)}, makes namespaces and overlays")


def refused_overlay(output: str) -> bool:
    """Tell whether bubblewrap could not make an overlay."""
    return "bwrap: Can't make overlay mount" in output


def explain(output: str) -> str | None:
    """Return what the complaint of bubblewrap in *output* means, or None when it made none."""
    said = [line for line in output.splitlines() if line.startswith("bwrap: ")]
    if not said:
        return None
    complaint = said[-1].removeprefix("bwrap: ")
    if _about_namespaces(complaint):
        return f"this machine does not let it make a namespace ({complaint}); {_advice()}"
    if "overlay mount" in complaint:
        return (
            f"this kernel cannot lay a throw-away overlay over the image ({complaint}); it takes "
            "Linux 5.11 or newer, an image on an ordinary file system with none mounted below it, "
            "and no more than one overlay underneath"
        )
    if "mount proc" in complaint:
        return (
            f"it may not mount /proc here ({complaint}); a container that runs it must not mask "
            f"its own /proc (docker run --security-opt systempaths=unconfined), {_INSTEAD}"
        )
    return f"bubblewrap failed: {complaint}"


def _about_namespaces(complaint: str) -> bool:
    return any(
        words in complaint.lower()
        for words in ("namespace", "setting up uid map", "setting up gid map", "loopback:")
    )


def _advice() -> str:
    """Name the setting that forbids it, if it can be found."""
    for kind in ("user", "net", "pid", "mnt", "ipc", "uts"):
        name = f"user.max_{kind}_namespaces"
        if _value(name) == "0":
            return f"{name} is 0; an administrator can allow it (sysctl {name}=10000), {_INSTEAD}"
    for name, right in _SETTINGS.items():
        value = _value(name)
        if value is not None and value != right:
            return (
                f"{name} is {value}; an administrator can allow it (sysctl {name}={right}), "
                f"{_INSTEAD}"
            )
    return f"unprivileged user namespaces are off here; an administrator can allow it, {_INSTEAD}"


def _value(setting: str) -> str | None:
    try:
        return Path("/proc/sys", *setting.split(".")).read_text().strip()
    except OSError:
        return None
