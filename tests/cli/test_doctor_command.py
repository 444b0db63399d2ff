"""``agentix doctor``: everything at once, in bounded time, in words for people and for scripts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CODE = "from agentix.cli import main; main()"
NO_CACHE = {"AGENTIX_CACHE_DIR": f"{tempfile.gettempdir()}/no-cache"}  # nothing to count
PLUGIN = r"""
import os, time
from agentix.provider.base import Finding, ListedSandbox, SandboxProvider

class Frank(SandboxProvider):
    async def create(self, config): ...
    async def delete(self, sandbox_id): ...
    async def get(self, sandbox_id): ...
    def diagnose(self):
        yield Finding("ok", "at https://me:hunter2@frank.invalid/ \x1b[31m\n in two lines")
        yield Finding("note", "it is late", "sleep")
    async def list(self):
        return [ListedSandbox("frank-1", "frank", None, "running", None, None, True)]

class Mute(Frank):
    def diagnose(self):
        time.sleep(3600)

class Wild(Frank):
    def diagnose(self):
        raise ZeroDivisionError("no\nway")

def command() -> None:
    print("told")
"""
POINTS = """[agentix.provider]
{name} = agentix_frank:{cls}
broken = agentix_missing:Broken
[agentix.commands]
fine = agentix_frank:command
lost = agentix_frank:lost
"""


def plugin(site: Path, name: str, cls: str) -> Path:
    info = site / "agentix_frank-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: agentix-frank\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS.format(name=name, cls=cls))
    (site / "agentix_frank.py").write_text(PLUGIN)
    return site


def doctor(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, "doctor", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **NO_CACHE, **(env or {})},
        cwd=cwd,
    )


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, list[dict[str, Any]]]:
    """Return what was found by the name of what it is about."""
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault(finding["subject"], []).append(finding)
    return found


@pytest.mark.nix
@pytest.mark.bubblewrap
def test_a_machine_that_builds_and_runs_is_healthy_and_left_as_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    done = doctor(
        "--offline",
        "--format",
        "json",
        env={"HOME": str(home), "AGENTIX_CACHE_DIR": str(home / "cache")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["healthy"] is True
    found = findings(done)
    for subject in ("nix", "store", "builders", "resolver", "cache", "bubblewrap", "emulation"):
        assert found[subject][0]["text"], subject
    assert found["nix"][0]["level"] == found["bubblewrap"][0]["level"] == "ok"
    assert found["cache"][0]["text"].startswith(f"{home}/cache: nothing yet, ")
    assert "python" not in found
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "subject", "words"),
    [
        ({"NIX_STORE_DIR": "/elsewhere"}, "nix", "unset NIX_STORE_DIR"),
        ({"AGENTIX_CACHE_DIR": "/proc/nowhere"}, "cache", "set AGENTIX_CACHE_DIR"),
        ({"AGENTIX_CACHE_DIR": "/etc/passwd"}, "cache", "/etc/passwd is not a folder"),
    ],
)
def test_what_a_build_cannot_do_without_is_a_problem_with_its_remedy(
    variables: dict[str, str], subject: str, words: str
) -> None:
    done = doctor("--offline", env=variables)
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if line.startswith(f"problem  {subject}:")]
    assert words in line
    assert done.stdout.splitlines()[-1].endswith(subject)


def test_a_provider_says_itself_how_it_is_on_clean_lines_without_secrets(tmp_path: Path) -> None:
    site = plugin(tmp_path / "site", "frank", "Frank")
    done = doctor("--offline", env={"PYTHONPATH": str(site)})
    assert "hunter2" not in done.stdout
    assert "\x1b" not in done.stdout
    lines = [line for line in done.stdout.splitlines() if " frank: " in line]
    assert lines == [
        "ok       frank:       at https://frank.invalid/ \\x1b[31m in two lines",
        "note     frank:       it is late; sleep",
        "note     frank:       1 sandbox is left over, whose owner is gone; "
        "agentix sandbox prune --all",
    ]


def test_a_plugin_that_is_broken_is_named_and_hides_nothing(tmp_path: Path) -> None:
    site = plugin(tmp_path / "site", "wild", "Wild")
    found = findings(doctor("--offline", "--format", "json", env={"PYTHONPATH": str(site)}))
    [broken], [wild], [lost], [fine] = (found[n] for n in ("broken", "wild", "lost", "fine"))
    assert "agentix-frank does not load: ModuleNotFoundError" in broken["text"]
    assert broken["advice"] == "reinstall or uninstall agentix-frank"
    assert wild["text"] == "ZeroDivisionError: no way"
    assert lost["level"] == "note"
    assert "does not load: AttributeError" in lost["text"]
    assert fine["level"] == "ok"
    assert "bubblewrap" in found


@contextmanager
def deaf_server() -> Iterator[int]:
    """Listen on a port where every connection is taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def deaf_socket(path: Path) -> Iterator[str]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield f"unix://{path}"


def hanging_programs(folder: Path, *names: str) -> Path:
    """Make programs that start a child and never end."""
    folder.mkdir()
    for name in names:
        file = folder / name
        file.write_text(f"#!/bin/sh\n: {folder}\nsleep 3600\n")
        file.chmod(0o755)
    return folder


def running(mark: str) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if mark in line and " ps " not in line]


@pytest.mark.slow
def test_nothing_that_hangs_holds_it_up_nor_is_left_over_nor_gets_a_secret_told(
    tmp_path: Path,
) -> None:
    site = plugin(tmp_path / "site", "mute", "Mute")
    programs = hanging_programs(tmp_path / "bin", "git", "gpgv", "npm", "skopeo", "podman")
    pipe = tmp_path / "docker.sock"
    os.mkfifo(pipe)
    with deaf_server() as port, deaf_socket(tmp_path / "podman.sock") as podman:
        address = f"http://me:hunter2@127.0.0.1:{port}"
        begun = time.monotonic()
        done = doctor(
            "--format",
            "json",
            env={
                "PATH": f"{programs}:{os.environ['PATH']}",
                "PYTHONPATH": str(site),
                "DOCKER_HOST": f"unix://{pipe}",
                "CONTAINER_HOST": podman,
                "UV_DEFAULT_INDEX": f"{address}/simple",
                "AGENTIX_DEBIAN_MIRROR": f"{address}/debian",
                "UV_CONFIG_FILE": "",
            },
            cwd=tmp_path,
        )
        took = time.monotonic() - begun
    assert done.returncode == 1, done.stderr
    assert took < 25  # ten, and what starting Python takes on a busy machine
    found = findings(done)
    for subject in ("git", "gpgv", "npm", "skopeo", "python", "debian", "mute", "docker", "podman"):
        assert found[subject][0]["level"] != "ok", subject
    assert "does not answer within 10 s" in found["mute"][0]["text"]
    assert "docker.sock" in found["docker"][0]["text"]
    assert "hunter2" not in done.stdout + done.stderr
    assert running(str(programs)) == []


@pytest.mark.parametrize(("level", "status"), [("note", 0), ("problem", 1)])
def test_what_hangs_decides_nothing_unless_it_is_a_problem(level: str, status: int) -> None:
    finding = f"d.Finding('{level}', 'hangs')"
    report = f"d.Report((d.Entry('other', 'x', {finding}),), unfinished=True)"
    code = "import agentix.doctor as d, agentix.findings; d.Finding = agentix.findings.Finding;"
    code += f"d.examine = lambda checks: {report};{CODE}"
    words = [sys.executable, "-c", code, "doctor", "--offline"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (status, "")
    assert "x:           hangs" in done.stdout


def on_terminal(width: int, env: Mapping[str, str]) -> list[str]:
    """Return the lines that a terminal of that *width* is sent."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, width, 0, 0))
    command = [sys.executable, "-c", CODE, "doctor", "--offline"]
    said = b""
    environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "CI", "NO_COLOR"}}
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**environment, **NO_CACHE, "TERM": "xterm-256color", **env},
    ):
        os.close(theirs)
        try:
            while piece := os.read(ours, 65536):
                said += piece
        except OSError:  # how the end of the other side shows
            pass
        os.close(ours)
    return said.decode().replace("\r", "").splitlines()


def test_a_narrow_terminal_gets_folded_lines_with_colours_only_where_they_are_wanted() -> None:
    coloured = "\n".join(on_terminal(50, {}))
    assert "\x1b[32mok" in coloured
    plain = on_terminal(50, {"NO_COLOR": "1"})
    assert "\x1b[3" not in "\n".join(plain)  # bold and dim are no colours
    bare = [line.replace("\x1b[1m", "").replace("\x1b[0m", "").rstrip() for line in plain]
    assert max(map(len, bare[:-1])) <= 50
    assert [line for line in bare if line.startswith("ok      nix")]
    assert bare[0] == "building"
