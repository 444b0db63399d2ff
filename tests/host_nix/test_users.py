"""Ordinary users, who build as well, each in the store that is theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import eventually

from agentix import nix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATIENCE = 30.0
STRANGER = 12345


@pytest.fixture
def stranger(busybox: str) -> Iterator[Callable[..., str]]:
    """Run code as an ordinary user, in a folder of theirs that has expressions to build."""
    if os.geteuid() != 0 or Path("/nix/var/nix/daemon-socket/socket").exists():
        pytest.skip("needs root, to become somebody else, and a machine without a Nix daemon")
    folder = Path(tempfile.mkdtemp(prefix="agentix-user-"))  # pytest's own folders are private
    shutil.copytree(busybox, folder / "busybox")
    ours = Path(nix.__file__).parents[1]  # the checkout may be as private as its owner likes
    shutil.copytree(ours, folder / "lib/agentix", ignore=shutil.ignore_patterns("__pycache__"))
    for name, script in {"good": "echo built > $out", "bad": "echo the reason; exit 5"}.items():
        (folder / f"{name}.nix").write_text(
            f"""derivation {{ name = "{name}"; system = builtins.currentSystem;
            builder = "${{./busybox}}/bin/busybox"; args = ["sh" "-c" "{script}"]; }}"""
        )
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    python = next(p for p in (sys.executable, "/usr/bin/python3") if _usable_by_all(p))

    def run(code: str, *, within: Sequence[str] = (), **environment: str) -> str:
        result = subprocess.run(
            [*within, python, "-c", textwrap.dedent(code)],
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
            cwd=folder,
            env={"HOME": str(folder), "PYTHONPATH": str(folder / "lib"), **environment},
            capture_output=True,
            text=True,
        )
        if "forbids the user namespaces" in result.stderr:
            pytest.skip("this machine forbids user namespaces")
        assert result.returncode == 0, result.stderr
        return result.stdout.replace(str(folder), "~")

    try:
        yield run
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


AS_STRANGER = """
    from pathlib import Path
    from agentix import nix
    from agentix.errors import NixError
    path = nix.build(Path("good.nix").absolute())
    [record] = nix.closure(path)
    assert record.path == path and path.read_text() == "built\\n"
    assert nix.rebuild(Path("good.nix").absolute()) == nix.Rebuilt(1, ())
    Path("file").write_text("added")
    [added] = nix.add_fixed([Path("file")])
    assert added.read_text() == "added" and nix.invalid([added]) == []
    try:
        nix.build(Path("bad.nix").absolute())
    except NixError as error:
        print(error, error.log, sep="; ")
    print(path)
"""


@pytest.mark.nix
def test_an_ordinary_user_without_a_daemon_builds_in_a_store_of_their_own(
    stranger: Callable[..., str],
) -> None:
    failure, path = stranger(AS_STRANGER).splitlines()
    assert failure == "building bad failed with exit status 5: the reason; the reason"
    assert path.startswith("~/.local/share/nix/root/nix/store/")


# A machine may forbid them by a limit of zero, which a user can set for what they start themselves.
WITHOUT_USER_NAMESPACES = """
    unshare --user true 2>/dev/null || exec "$@"
    exec unshare --user --map-current-user --keep-caps sh -c '
        echo 0 >/proc/sys/user/max_user_namespaces
        exec setpriv --ambient-caps -all --inh-caps -all "$@"' sh "$@"
"""


@pytest.mark.nix
def test_an_ordinary_user_whom_no_sandbox_is_granted_learns_what_to_do(
    stranger: Callable[..., str],
) -> None:
    said = stranger(
        """
        from pathlib import Path
        from agentix import nix
        from agentix.errors import NixError
        try:
            nix.build(Path("good.nix").absolute())
        except NixError as error:
            print(error)
        """,
        within=["sh", "-c", WITHOUT_USER_NAMESPACES, "sh"],
    )
    assert said == (
        "this machine forbids the user namespaces that a store of one's own "
        "(~/.local/share/nix/root) needs; build as root, or install a Nix daemon (on Debian: "
        "apt-get install nix-setup-systemd, and be in the group nix-users)\n"
    )


@pytest.mark.nix
def test_an_ordinary_user_whom_the_daemon_does_not_serve_builds_in_a_store_of_their_own(
    stranger: Callable[..., str],
) -> None:
    said = stranger(
        """
        from pathlib import Path
        from agentix import nix
        from agentix.nix import installation
        installation._SOCKET = Path("daemon-socket/socket").absolute()
        installation._SOCKET.parent.mkdir()
        installation._SOCKET.touch()
        installation._SOCKET.parent.chmod(0)
        print(nix.build(Path("good.nix").absolute()))
        """
    )
    assert said.startswith("~/.local/share/nix/root/nix/store/")


@pytest.mark.nix
def test_an_ordinary_user_of_a_daemon_builds_in_the_store_of_the_machine(
    stranger: Callable[..., str], tmp_path: Path
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="agentix-daemon-"))
    folder.chmod(0o755)
    socket = {"NIX_DAEMON_SOCKET_PATH": str(folder / "socket")}
    said: list[str] = []
    with subprocess.Popen(
        [nix.find().programs / "nix-daemon"],
        env=os.environ | socket | {"NIX_CONFIG": "build-users-group ="},
        stderr=subprocess.PIPE,
        text=True,
    ) as daemon:
        try:
            eventually((folder / "socket").exists, "the daemon listens")
            output = stranger(AS_STRANGER, NIX_REMOTE="daemon", **socket)
        finally:
            daemon.terminate()
            said += daemon.communicate(timeout=PATIENCE)[1].splitlines()
            shutil.rmtree(folder)
    failure, path = output.splitlines()
    assert failure == "building bad failed with exit status 5: the reason; the reason"
    assert path.startswith("/nix/store/")
    assert any(f"user {STRANGER}" in line for line in said), said


def _usable_by_all(python: str) -> bool:
    command = [python, "-c", "import sys; assert sys.version_info >= (3, 11)"]
    try:
        return subprocess.run(command, user=STRANGER, group=STRANGER, check=False).returncode == 0
    except OSError:
        return False
