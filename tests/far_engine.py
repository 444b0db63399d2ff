"""A Docker engine on another machine, as far as a program can tell: in a network of its own.

It listens there with TLS, and an ssh server beside it; both are at the other end of a cable that
can be pulled. All of it is gone afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import docker
from engines import forget
from patience import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

TLS, SSH = 2376, 2222
_SSHD = """
Port {port}
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/login.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PidFile none
SetEnv DOCKER_HOST=unix://{folder}/docker.sock
"""
_EXTENSIONS = """
[server]
subjectAltName = IP:{address}
extendedKeyUsage = serverAuth
[client]
extendedKeyUsage = clientAuth
"""


def missing() -> str | None:
    """Say why there can be none here."""
    if os.getuid() != 0:
        return "only root can make a network for another engine"
    for program in ("dockerd", "ip", "nsenter", "openssl"):
        if shutil.which(program) is None:
            return f"{program} is not installed (tools/setup.sh tests installs it or says why not)"
    name = f"agentix-probe-{os.getpid()}"
    result = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if result.returncode:
        return f"no network can be made here: {result.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


def missing_ssh() -> str | None:
    """Say why it cannot be reached by ssh."""
    for program in ("sshd", "ssh", "ssh-keygen"):
        if _which(program) is None:
            return f"{program} is not installed (tools/setup.sh tests installs it or says why not)"
    if shutil.which("docker", path="/usr/local/bin:/usr/bin:/bin") is None:
        return "docker is not installed where an ssh server finds it (tools/setup.sh tests)"
    return None


@dataclass
class FarEngine:
    """The engine at the other end: its files, its address, and the SDK's client of it."""

    folder: Path
    address: str
    cable: str
    client: docker.DockerClient
    sshd: subprocess.Popen[bytes] | None = None
    _networks: list[str] = field(default_factory=list)

    @property
    def tls(self) -> dict[str, str]:
        """The environment by which it is reached with TLS."""
        return {
            "DOCKER_HOST": f"tcp://{self.address}:{TLS}",
            "DOCKER_TLS_VERIFY": "1",
            "DOCKER_CERT_PATH": str(self.folder / "certs"),
        }

    @property
    def ssh(self) -> dict[str, str]:
        """The environment by which it is reached with ssh, as a user has it who set that up."""
        return {
            "DOCKER_HOST": f"ssh://root@{self.address}:{SSH}",
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
        }

    def pull_cable(self, *, out: bool) -> None:
        """Cut the connection, or have it again."""
        _run("ip", "link", "set", self.cable, "down" if out else "up")

    @contextlib.contextmanager
    def plain(self, address: str = "127.0.0.1") -> Iterator[Tap]:
        """Have it listen without TLS, where what is sent to it is counted."""
        tap = Tap(address, str(self.folder / "docker.sock"))
        try:
            yield tap
        finally:
            tap.close()


class Tap:
    """A port that leads to a Unix socket, and counts what goes there."""

    def __init__(self, address: str, target: str) -> None:
        self.sent = 0
        self.cut_before: bytes | None = None
        """All connections end before this is passed on; once."""
        self._target = target
        self._open: list[socket.socket] = []
        self._listener = socket.create_server((address, 0))
        self.url = f"tcp://{address}:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._start(self._listen)

    def cut(self) -> None:
        """End all connections that there are, as when what they go through ends."""
        for each in tuple(self._open):  # not those that come meanwhile
            with contextlib.suppress(OSError):
                # With this, what has not been read is not waited for.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Listen no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(1)
        for each in (self._listener, *self._open):
            each.close()

    def _listen(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX)
            there.connect(self._target)
            self._open += [here, there]
            self._start(self._carry, here, there, 1)
            self._start(self._carry, there, here, 0)

    def _carry(self, source: socket.socket, target: socket.socket, weight: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                if weight and self.cut_before is not None and self.cut_before in data:
                    self.cut_before = None
                    self.cut()
                    break
                target.sendall(data)
                self.sent += weight * len(data)
            if self._is_cut(source):
                raise ConnectionAbortedError
            target.shutdown(socket.SHUT_WR)
            return
        for each in (source, target):
            each.close()

    def _is_cut(self, end: socket.socket) -> bool:
        linger = end.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
        return struct.unpack("ii", linger) == (1, 0)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


@contextlib.contextmanager
def far_engine() -> Iterator[FarEngine]:
    """Yield one, with what is between it and here."""
    folder = Path(tempfile.mkdtemp(prefix="agentix-far-"))
    number = os.getpid() % (1 << 14)
    network, cable = f"agentix-far-{os.getpid()}", f"agx{os.getpid()}"
    # Of the addresses that are for tests of networks.
    here, there = (f"198.18.{number >> 6}.{(number & 63) * 4 + host}" for host in (1, 2))
    with contextlib.ExitStack() as stack:
        stack.callback(forget, folder)
        _run("ip", "netns", "add", network)
        stack.callback(_run, "ip", "netns", "delete", network)
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "far", "netns", network)
        _run("ip", "addr", "add", f"{here}/30", "dev", cable)
        _run("ip", "link", "set", cable, "up")
        for words in (
            ("addr", "add", f"{there}/30", "dev", "far"),
            ("link", "set", "far", "up"),
            ("link", "set", "lo", "up"),
        ):
            _run("ip", "-n", network, *words)
        _certify(folder / "certs", there)
        inside = ("nsenter", f"--net=/run/netns/{network}")
        command = [*inside, "dockerd", *_choices(folder, there)]
        stack.enter_context(_daemon(command, folder / "dockerd.log"))
        client = _client(folder)
        stack.callback(client.close)
        engine = FarEngine(folder, there, cable, client)
        if missing_ssh() is None:
            _prepare_ssh(folder, there)
            sshd = [*inside, str(_which("sshd")), "-D", "-e", "-f", f"{folder}/sshd_config"]
            engine.sshd = stack.enter_context(_daemon(sshd, folder / "sshd.log"))
        yield engine


def _choices(folder: Path, address: str) -> list[str]:
    certs = folder / "certs"
    return [
        *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"),
        *("--pidfile", f"{folder}/pid", "--bridge", "none"),
        *("--iptables=false", "--ip6tables=false"),
        *("--tlsverify", f"--tlscacert={certs}/ca.pem"),
        *(f"--tlscert={certs}/server.pem", f"--tlskey={certs}/server.key"),
        *("-H", f"tcp://{address}:{TLS}", "-H", f"unix://{folder}/docker.sock"),
    ]


@contextlib.contextmanager
def _daemon(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as said:
        daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
    try:
        yield daemon
    finally:
        daemon.terminate()
        daemon.wait(60)


def _client(folder: Path) -> docker.DockerClient:
    path = folder / "docker.sock"
    eventually(path.exists, "the engine starts", within=60)
    client = docker.DockerClient(f"unix://{path}", version="1.40", timeout=60)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except (docker.errors.DockerException, OSError):
            return False

    eventually(answers, "the engine answers", within=60)
    return client


def _certify(folder: Path, address: str) -> None:
    """Make an authority, and what it has certified: the engine and who may use it."""
    folder.mkdir()
    new = ("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    (folder / "extensions").write_text(_EXTENSIONS.format(address=address))
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    _run(*new, "-x509", "-subj", "/CN=tests", "-days", "2", "-keyout", ca_key, "-out", ca)
    for name, (cert, key) in {
        "server": ("server.pem", "server.key"),
        "client": ("cert.pem", "key.pem"),
    }.items():
        request = folder / f"{name}.csr"
        _run(*new, "-subj", f"/CN={name}", "-keyout", folder / key, "-out", request)
        _run(
            *("openssl", "x509", "-req", "-in", request, "-out", folder / cert, "-days", "2"),
            *("-CA", ca, "-CAkey", ca_key, "-CAcreateserial"),
            *("-extfile", folder / "extensions", "-extensions", name),
        )


def _prepare_ssh(folder: Path, address: str) -> None:
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "login"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name)
    (folder / "sshd_config").write_text(_SSHD.format(port=SSH, address=address, folder=folder))
    key = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"[{address}]:{SSH} {key}")
    (folder / "bin").mkdir()
    wrapper = folder / "bin/ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {_which("ssh")} -F {folder}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    (folder / "ssh_config").write_text(
        f"IdentityFile {folder}/login\nUserKnownHostsFile {folder}/known_hosts\n"
        "GlobalKnownHostsFile none\nIdentitiesOnly yes\n"
    )


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _run(*command: str | Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"{command}: {result.stderr}"
