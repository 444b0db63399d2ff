"""What a task in a sandbox sees and may do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from procfs import processes
from stub_runtime import host, look

from agentix.provider.bubblewrap import BubblewrapProvider, BubblewrapProviderConfig
from agentix.provider.runtime_folder import RuntimeFolder

pytestmark = pytest.mark.bubblewrap


async def test_the_environment_is_the_images_and_what_was_asked_for(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET", "LD_PRELOAD_X", "PYTHONSTARTUP", "LC_ALL"):
        monkeypatch.setenv(name, "host")
    async with BubblewrapProvider().session(host(bundle, ASKED="a b=c\n'$x")) as sandbox:
        environment = await look(sandbox, "dict(os.environ)")
    assert environment["ASKED"] == "a b=c\n'$x"
    assert set(environment) <= {"PATH", "HOME", "PWD", "ASKED", "LC_CTYPE"}


async def test_the_hosts_umask_is_not_the_tasks(bundle: Path) -> None:
    before = os.umask(0o077)
    try:
        async with BubblewrapProvider().session(host(bundle)) as sandbox:
            assert await look(sandbox, "os.umask(0)") == 0o022
    finally:
        os.umask(before)


async def test_secrets_are_on_no_command_line(bundle: Path) -> None:
    async with BubblewrapProvider().session(host(bundle, KEY="s3cr3t-value")) as sandbox:
        token = RuntimeFolder.find(sandbox.sandbox_id)[0].token
        assert processes("/nix/runtime/bootstrap.sh")
        assert processes("s3cr3t-value") == []
        assert processes(token) == []
        assert await look(sandbox, "os.path.exists('/nix/run/token')") is False


async def test_proxies_of_the_host_do_not_stand_between(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        assert (await sandbox.health()).status == "ok"


async def test_the_host_is_seen_and_never_written_to(bundle: Path) -> None:
    mark = f"agentix-{os.getpid()}"
    places = [f"{place}/{mark}" for place in ("/usr", "/etc", "/tmp", "/", str(Path.home()))]
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        assert await look(sandbox, "open('/etc/passwd').read()") == Path("/etc/passwd").read_text()
        assert await look(sandbox, f"[open(p, 'w').write('x') for p in {places}]")
        assert await look(sandbox, f"os.path.exists({places[0]!r})") is True
        theirs = {path.name for path in Path("/nix").glob("*")}  # on a machine with Nix
        ours = {"run", "runtime", "store"}
        assert set(await look(sandbox, "os.listdir('/nix')")) == theirs | ours
    assert [place for place in places if Path(place).exists()] == []


async def test_sockets_and_temporary_files_of_the_host_are_out_of_reach(
    bundle: Path, tmp_path: Path
) -> None:
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        assert await look(sandbox, "os.listdir('/tmp') + os.listdir('/run')") == []
        assert await look(sandbox, "oct(os.stat('/tmp').st_mode)") == "0o41777"


async def test_a_sandbox_has_no_privilege_and_no_way_to_one(bundle: Path) -> None:
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        assert await look(sandbox, "os.getpid()") == 1
        status = await look(sandbox, "open('/proc/self/status').read()")
        assert "NoNewPrivs:\t1" in status
        for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
            assert f"Cap{kind}:\t0000000000000000" in status
        unshare = "__import__('subprocess').run(['unshare', '-U', 'true']).returncode"
        assert await look(sandbox, unshare) != 0
        names = ("ipc", "mnt", "net", "pid", "user", "uts")
        for name in names:
            link = f"/proc/self/ns/{name}"
            assert await look(sandbox, f"os.readlink({link!r})") != str(Path(link).readlink())


WRITABLE = """
def writable(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True
"""


async def test_the_kernels_settings_cannot_be_written_even_by_roots_sandbox(bundle: Path) -> None:
    paths = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sysrq-trigger",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/proc/kcore",
    ]
    expression = f"[p for p in {paths} if (exec({WRITABLE!r}, globals()), writable(p))[1]]"
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        assert await look(sandbox, expression) == []
        assert await look(sandbox, "open('/proc/timer_list').read()") == ""


async def test_there_is_no_network_but_a_loopback_unless_asked_for(bundle: Path) -> None:
    interfaces = "sorted(os.listdir('/proc/self/net/dev_snmp6'))"
    loopback = (
        "(s := __import__('socket').create_server(('127.0.0.1', 0)),"
        " __import__('socket').create_connection(s.getsockname()).close(), s.close())[1]"
    )
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        assert await look(sandbox, interfaces) == ["lo"]
        assert await look(sandbox, loopback) is None
    shared = BubblewrapProviderConfig(network="host").to_provider()
    async with shared.session(host(bundle)) as sandbox:
        mine = str(Path("/proc/self/ns/net").readlink())
        assert await look(sandbox, "os.readlink('/proc/self/ns/net')") == mine


async def test_a_read_only_sandbox_works_and_cannot_be_written_to(bundle: Path) -> None:
    provider = BubblewrapProviderConfig(read_only=True).to_provider()
    async with provider.session(host(bundle)) as sandbox:
        places = ["/", "/usr", "/etc", "/tmp"]
        assert await look(sandbox, f"[p for p in {places} if os.access(p, os.W_OK)]") == []
