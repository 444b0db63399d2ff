"""What a failure of Apptainer means, in words that help."""

from __future__ import annotations

import re
from pathlib import Path

from agentix.provider.kit import plain

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MARK = re.compile(r"^(FATAL|ERROR): *")
_INSTEAD = "or use another provider, such as docker"
_LONGEST = 400


def complaint(output: str) -> str | None:
    """Return the last thing in *output* that Apptainer itself complained of, on one line."""
    lines = [_COLOUR.sub("", line).strip() for line in output.splitlines()]
    said = [_MARK.sub("", line) for line in lines if _MARK.match(line)]
    if not said:
        return None
    text = plain(said[-1])
    return text if len(text) <= _LONGEST else f"… {text[-_LONGEST:]}"


def explain(output: str) -> str | None:
    """Return what the complaint in *output* means for a sandbox; None when there is none."""
    said = complaint(output)
    if said is None:
        return None
    lower = said.lower()
    if "exec format error" in lower:
        return f"the bundle's programs are for another platform than this machine ({said})"
    if "user namespace" in lower or "failed to create user" in lower:
        return (
            f"this machine does not let it make a user namespace ({said}); an administrator can "
            f"allow it{_setting()}, {_INSTEAD}"
        )
    if "image driver" in lower or "fuse" in lower:
        return (
            f"this machine cannot mount the image ({said}); unpack it once (apptainer build "
            f"--sandbox FOLDER IMAGE) and give the folder, {_INSTEAD}"
        )
    if "cgroup" in lower:
        return f"it cannot limit what a sandbox uses here ({said}); leave out resource, {_INSTEAD}"
    return f"apptainer failed: {said}"


def _setting() -> str:
    for name, right in (
        ("user.max_user_namespaces", ""),
        ("kernel.unprivileged_userns_clone", "1"),
        ("kernel.apparmor_restrict_unprivileged_userns", "0"),
    ):
        try:
            value = Path("/proc/sys", *name.split(".")).read_text().strip()
        except OSError:
            continue
        if (right and value != right) or (not right and value == "0"):
            return f" ({name} is {value})"
    return ""
