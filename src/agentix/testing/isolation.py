"""What a task can neither see nor change: each thing that the subject declares, tried from inside.

What it does not declare, the provider has to say itself.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentix.testing import probes
from agentix.testing.case import scenario
from agentix.testing.group import Group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.testing.case import Case, Inside

# Bits of the kernel's capability sets: each of these is a way out, or into others' affairs.
_DANGEROUS = {
    "linux_immutable": 9,
    "net_admin": 12,
    "net_raw": 13,
    "sys_module": 16,
    "sys_rawio": 17,
    "sys_chroot": 18,
    "sys_ptrace": 19,
    "sys_admin": 21,
    "sys_boot": 22,
    "sys_time": 25,
    "mknod": 27,
    "syslog": 34,
    "perfmon": 38,
    "bpf": 39,
}
_SETTINGS = (
    "/proc/kcore",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/vm/drop_caches",
    "/proc/sysrq-trigger",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/devices/devices.allow",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)
_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/dbus")


class Isolation(Group):
    """Files, privileges, processes, network, the kernel, and the bundle itself."""

    @scenario
    async def test_a_provider_that_isolates_nothing_says_so(
        self, case: Case, caplog: pytest.LogCaptureFixture
    ) -> None:
        if case.subject.isolates:
            pytest.skip(f"it isolates {', '.join(sorted(case.subject.isolates))}")
        with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.WARNING):
            warnings.simplefilter("always")
            async with case.provider().session(case.config()):
                pass
        said = [str(each.message) for each in warned]
        said += [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        assert any("isolat" in text for text in said), "neither a warning nor a logged one says so"

    def test_files_of_the_host_are_out_of_sight(self, case: Case, inside: Inside) -> None:
        case.isolates("files")
        secret = case.place.folder / f"secret-{secrets.token_hex(8)}"
        secret.write_text("of the host")
        try:
            own = [str(secret), str(case.place.folder), str(Path(__file__)), sys.executable]
            shared = set(inside.call(probes.existing, own))
        finally:
            secret.unlink()
        # An image may be the host's own root; what is private to a program must not be in it.
        assert not shared & {str(secret), str(case.place.folder)}
        assert inside.call(probes.existing, list(_SOCKETS)) == []

    def test_of_folders_of_the_host_only_the_sockets_is_writable(
        self, case: Case, inside: Inside
    ) -> None:
        case.isolates("files")
        mounted = inside.call(probes.mounts)
        root = str(case.place.folder)
        ours = {place for place, source in mounted.items() if source.startswith(root)}
        assert ours <= {case.subject.socket_folder}
        name = f"agentix-{secrets.token_hex(8)}"
        places = [Path(folder, name) for folder in ("/", "/etc", "/home", "/tmp", "/usr", "/var")]
        inside.call(probes.create, [str(place) for place in places])
        reached = [place for place in places if place.exists()]
        for place in reached:
            place.unlink()
        assert reached == []

    def test_the_sockets_folder_shows_nothing_but_the_socket(
        self, case: Case, inside: Inside
    ) -> None:
        folder = case.subject.socket_folder
        case.require(folder, "socket_folder")
        assert folder is not None
        assert inside.call(probes.entries, folder) == ["s"]

    def test_the_bundle_cannot_be_changed(self, case: Case, inside: Inside) -> None:
        case.isolates("bundle")
        assert inside.call(probes.entries, "/nix") == ["run", "runtime", "store"]
        places = ["/nix", "/nix/store", "/nix/runtime/", "/nix/runtime/bootstrap.sh"]
        assert inside.call(probes.writable, places) == []
        assert not inside.call(probes.remounts, "/nix")
        assert inside.call(probes.writable, places) == []

    def test_no_program_gains_privileges(self, case: Case, inside: Inside) -> None:
        case.isolates("privileges")
        assert inside.call(probes.status)["NoNewPrivs"] == "1"

    def test_it_has_no_dangerous_capability(self, case: Case, inside: Inside) -> None:
        case.isolates("capabilities")
        status = inside.call(probes.status)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            mask = int(status[kind], 16)
            held = [name for name, bit in _DANGEROUS.items() if mask & 1 << bit]
            assert held == [], kind

    def test_processes_of_the_host_are_out_of_sight(self, case: Case, inside: Inside) -> None:
        case.isolates("processes")
        marker = f"agentix-{secrets.token_hex(8)}"
        code = "print(flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", code, marker], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()  # now it is called what it is called
            seen = inside.call(probes.commands)
            process.stdin.close()
        assert not [command for command in seen if marker in command]
        assert any("agentix_runtime" in command for command in seen)

    def test_shared_memory_of_the_host_is_out_of_reach(self, case: Case, inside: Inside) -> None:
        case.isolates("ipc")
        case.require(case.subject.is_local, "is_local")
        host = {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
        assert inside.call(probes.namespaces)["ipc"] != host["ipc"]

    def test_the_hosts_network_is_out_of_reach(self, case: Case, inside: Inside) -> None:
        case.isolates("network")
        with _listening() as (port, name):
            assert not inside.call(probes.reaches, "127.0.0.1", port)
            assert not inside.call(probes.reaches_abstract, name)
        assert inside.call(probes.loopback)

    @scenario
    async def test_without_a_network_calls_work_and_nothing_else(self, case: Case) -> None:
        provider = case.subject.without_network
        case.require(provider, "without_network")
        assert provider is not None
        with _listening() as (port, _):
            addresses = ["127.0.0.1", *_addresses()]
            async with provider().session(case.config()) as sandbox:
                assert set(await sandbox.remote(probes.interfaces)) <= {
                    *(
                        "lo",
                        "tunl0",
                        "sit0",
                        "gre0",
                        "ip6tnl0",
                    )  # the kernel's own, all of them down
                }
                for address in addresses:
                    assert not await sandbox.remote(probes.reaches, address, port), address
                assert await sandbox.remote(probes.loopback)
                assert await sandbox.remote(probes.echo, "still") == "still"

    def test_settings_of_the_kernel_cannot_be_changed(self, case: Case, inside: Inside) -> None:
        case.isolates("kernel settings")
        assert inside.call(probes.writable, list(_SETTINGS)) == []

    def test_there_are_no_disks(self, case: Case, inside: Inside) -> None:
        case.isolates("devices")
        assert inside.call(probes.disks) == []


@contextlib.contextmanager
def _listening() -> Iterator[tuple[int, str]]:
    """Listen on every address of this machine and on an abstract socket: a port, and a name."""
    name = f"agentix-{secrets.token_hex(8)}"
    with socket.create_server(("", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0{name}")
        local.listen()
        stop = threading.Event()

        def accept() -> None:
            tcp.settimeout(0.1)
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    tcp.accept()[0].close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            port = tcp.getsockname()[1]
            assert probes.reaches("127.0.0.1", port)
            assert probes.reaches_abstract(name)
            yield port, name
        finally:
            stop.set()
            thread.join()


def _addresses() -> list[str]:
    """Return an address of this machine that is not its loopback, if it has one."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # which sends nothing
        return [probe.getsockname()[0]]
    return []
