"""Nix, as it is on this machine: found, asked, interrupted, and explained when it fails."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from patience import eventually

from agentix import nix
from agentix.errors import NixError
from agentix.nix import installation, program
from agentix.nix.log import BuildLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Told:
    """Progress, and a step of it, that writes down how steps ended."""

    def __init__(self, outcomes: list[str]) -> None:
        self.outcome = outcomes.append

    @contextlib.contextmanager
    def step(self, title: str, *, total: int | None = None, unit: str = "items") -> Iterator[Told]:
        yield self

    def advance(self, amount: int = 1) -> None:
        pass


PATIENCE = 30.0
STRANGER = 12345


@pytest.fixture(scope="session")
def busybox() -> str:
    """The store path of the static busybox that all builds start from."""
    from agentix import platforms
    from agentix.build import toolchain
    from agentix.build.fetch import Needs, fetch

    seed = toolchain.seeds().programs[platforms.current().name]["busybox"]
    fetch(Needs((), (seed,)), project=Path.cwd(), python="3.11")
    return seed.store_path


@pytest.fixture
def expression(tmp_path: Path, busybox: str) -> Callable[..., Path]:
    """Write an expression that builds by running a shell script; returns its file."""

    def write(script: str, name: str = "step", **inputs: str) -> Path:
        file = tmp_path / f"{name}.nix"
        more = "".join(f"{key} = import {value};" for key, value in inputs.items())
        text = textwrap.dedent(script)
        file.write_text(
            f"""let busybox = "${{builtins.storePath {busybox}}}/bin/busybox"; in
            derivation {{ name = "{name}"; system = builtins.currentSystem; builder = busybox;
              inherit busybox; unique = "{uuid.uuid4()}"; {more}
              args = ["sh" "-c" ''\n{text}'']; }}"""
        )
        return file

    return write


# Store paths


@pytest.mark.nix
@pytest.mark.machine_store
@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize(
    "name", ["a", "busybox", "jq_1.6-2.1+deb12u2_amd64.deb", "x?y=z.whl", "A" * 200]
)
def test_a_store_path_is_computed_as_nix_computes_it(name: str, recursive: bool) -> None:
    for seed in range(4):
        digest = hashlib.sha256(f"{name} {seed}".encode()).hexdigest()
        kind = ["--recursive"] if recursive else []
        command = ["nix-store", "--print-fixed-path", *kind, "sha256", digest, name]
        expected = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.strip()
        assert nix.fixed_path(name, digest, recursive=recursive) == expected


def test_a_store_name_has_only_what_nix_admits() -> None:
    assert nix.store_name("jq_1.6~rc1%3a_amd64.deb") == "jq_1.6-rc1-3a_amd64.deb"
    assert nix.store_name("six-1.0+local-py3.whl") == "six-1.0+local-py3.whl"


@pytest.mark.nix
@pytest.mark.machine_store
def test_a_file_is_added_where_it_was_computed_to_be(tmp_path: Path) -> None:
    files = [tmp_path / f"file-{number}" for number in range(3)]
    for file in files:
        file.write_text(f"{file.name} {uuid.uuid4()}")
    expected = [
        Path(nix.fixed_path(file.name, hashlib.sha256(file.read_bytes()).hexdigest()))
        for file in files
    ]
    assert nix.invalid(expected) == expected
    assert nix.add_fixed(files) == expected
    assert nix.add_fixed(files) == expected
    assert nix.invalid(expected) == []
    assert [path.read_bytes() for path in expected] == [file.read_bytes() for file in files]


@pytest.mark.nix
def test_a_path_on_disk_that_nix_does_not_know_is_invalid(tmp_path: Path) -> None:
    file = tmp_path / "left-behind"
    file.write_text(str(uuid.uuid4()))
    path = Path(nix.fixed_path(file.name, hashlib.sha256(file.read_bytes()).hexdigest()))
    if not os.access(path.parent, os.W_OK):
        pytest.skip("the store belongs to somebody else, who alone can leave something behind")
    path.write_text("half of it")
    assert nix.invalid([path]) == [path]
    assert nix.add_fixed([file]) == [path]  # and adding it puts that right
    assert path.read_bytes() == file.read_bytes()


@pytest.mark.nix
@pytest.mark.machine_store
def test_a_closure_is_everything_referred_to_with_hash_and_size(
    expression: Callable[..., Path], busybox: str
) -> None:
    inner = expression("$busybox mkdir $out; echo one > $out/text", "inner")
    outer = expression(
        "$busybox mkdir $out; echo $inner $busybox > $out/text", "outer", inner=str(inner)
    )
    root = nix.build(outer)
    found = nix.closure(root)
    names = [record.path.name[33:] for record in found]
    assert sorted(names) == ["busybox", "inner", "outer"]
    assert [record.path.name for record in found] == sorted(record.path.name for record in found)
    for record in found:
        command = ["nix-hash", "--type", "sha256", str(record.path)]
        assert subprocess.check_output(command, text=True).strip() == record.sha256
        query = ["nix-store", "--query", "--size", str(record.path)]
        size = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        assert int(size) == record.size


# Failures


@pytest.mark.nix
def test_a_failed_step_is_named_with_its_status_and_its_last_words(
    expression: Callable[..., Path],
) -> None:
    inner = expression(
        r"""
        for i in 1 2 3; do echo "line $i"; done
        printf '\033[31mthe reason\033[0m\n' >&2; exit 7
        """,
        "culprit",
    )
    outer = expression("echo > $out", "victim", inner=str(inner))
    with pytest.raises(NixError) as caught:
        nix.build(outer)
    assert str(caught.value) == "building culprit failed with exit status 7: the reason"
    assert caught.value.log.splitlines() == ["line 1", "line 2", "line 3", "the reason"]
    assert caught.value.returncode not in (0, None)


@pytest.mark.nix
def test_of_steps_that_run_at_once_the_failed_one_is_quoted(
    expression: Callable[..., Path],
) -> None:
    steady = expression(
        "i=0; while [ $i -lt 300 ]; do echo steady $i; i=$((i+1)); done; echo > $out", "steady"
    )
    broken = expression("echo broken; exit 1", "broken")
    outer = expression("echo > $out", "outer", steady=str(steady), broken=str(broken))
    with pytest.raises(NixError, match=r"building broken failed with exit status 1: broken"):
        nix.build(outer)


@pytest.mark.nix
def test_an_expression_that_nix_refuses_gives_its_reason_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.nix"
    file.write_text('throw "the lock names\\n the toolchain x"')
    with pytest.raises(NixError, match="the lock names the toolchain x") as caught:
        nix.build(file)
    assert "\n" not in str(caught.value)


@pytest.mark.nix
def test_arguments_reach_the_expression_as_strings(tmp_path: Path, busybox: str) -> None:
    file = tmp_path / "echo.nix"
    file.write_text(
        """{ word, busybox }: derivation { name = "echo"; system = builtins.currentSystem;
        builder = "${builtins.storePath busybox}/bin/busybox"; inherit word;
        args = ["sh" "-c" "echo -n $word > $out"]; }"""
    )
    word = f"two words {uuid.uuid4()}"
    assert nix.build(file, {"word": word, "busybox": busybox}).read_text() == word


@pytest.mark.nix
def test_building_again_accepts_what_is_equal_and_names_what_is_not(
    expression: Callable[..., Path],
) -> None:
    steady = nix.build(expression("echo always the same > $out", "steady"))
    assert nix.rebuild(steady) == 1
    moody = expression("$busybox cat /proc/sys/kernel/random/uuid > $out", "moody")
    outer = nix.build(expression("$busybox true $moody; echo > $out", "outer", moody=str(moody)))
    with pytest.raises(NixError, match="moody is not reproducible"):
        nix.rebuild(outer)


@pytest.mark.nix
def test_what_our_builders_warn_of_is_told_and_what_backends_print_is_not(
    expression: Callable[..., Path],
) -> None:
    outcomes: list[str] = []
    warns = "for n in 1 2 3 4 5 6 7; do echo agentix warning: $n; done"
    script = f"echo warning: setup.py is old; {warns}; echo > $out"
    nix.build(expression(script, "warns"), progress=Told(outcomes))
    said = [text.split() for text in outcomes if text.startswith("warning: ")]
    assert [words[1] for words in said] == ["1", "2", "3", "4", "5", "2"]
    assert said[-1][2:] == ["more", "of", "this", "kind"]


def test_the_log_survives_what_it_does_not_know() -> None:
    lines = [
        "warning: something old",
        "@nix no json",
        "@nix []",
        '@nix {"action":"start"}',
        '@nix {"action":"result","type":101,"id":77,"fields":["of nobody"]}',
        '@nix {"action":"brandnew","id":[1]}',
        json.dumps(
            {"action": "start", "type": 105, "id": 1, "fields": [f"/nix/store/{'a' * 32}-x.drv"]}
        ),
        json.dumps({"action": "result", "type": 101, "id": 1, "fields": ["its words"]}),
        json.dumps({"action": "stop", "id": 1}),
    ]
    built = []
    log = BuildLog(on_built=lambda: built.append(1))
    for line in lines:
        log.feed(line if line.startswith(("@nix", "warning")) else f"@nix {line}")
    newer = (
        f"error: Cannot build '/nix/store/{'a' * 32}-x.drv'.\n"
        "       Reason: builder failed with exit code 9.\n"
    )
    log.feed("@nix " + json.dumps({"action": "msg", "level": 0, "msg": newer}))
    waiting = f"error: Cannot build '/nix/store/{'b' * 32}-y.drv'.\nReason: 1 dependency failed."
    log.feed("@nix " + json.dumps({"action": "msg", "level": 0, "msg": waiting}))
    failure = log.failure()
    assert (failure.step, failure.status, failure.lines) == ("x", 9, ["its words"])
    assert len(built) == 1


# Machines


def test_a_machine_without_nix_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installation, "_PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NixError, match=r"Nix is not installed .*apt-get install nix-bin"):
        nix.find()


@pytest.mark.nix
def test_nix_is_found_where_path_does_not_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert (nix.find().programs / "nix-build").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("NIX_STORE_DIR", "/gnu/store"), ("NIX_REMOTE", "ssh://elsewhere")]
)
def test_a_store_that_bundles_cannot_come_from_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(NixError, match=f"{name} is {value}.*unset"):
        nix.find()


@pytest.mark.nix
@pytest.mark.machine_store
@pytest.mark.parametrize("home", [None, "", "/nonexistent", "/proc"])
def test_no_home_is_needed(
    monkeypatch: pytest.MonkeyPatch, expression: Callable[..., Path], home: str | None
) -> None:
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    assert nix.build(expression("echo built > $out")).read_text() == "built\n"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: int) -> NoReturn:
        raise KeyError

    for name in ("NIX_REMOTE", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path).endswith(("-store", "-build")))
    with pytest.raises(NixError, match="no home; set NIX_REMOTE"):
        nix.find()


@pytest.mark.nix
@pytest.mark.machine_store
def test_a_folder_for_temporary_files_that_cannot_be_used_is_not(
    monkeypatch: pytest.MonkeyPatch, expression: Callable[..., Path]
) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setattr("tempfile.tempdir", None)  # what Python has found before
    assert nix.build(expression("echo built > $out")).read_text() == "built\n"


@pytest.mark.nix
def test_a_substituter_is_never_asked(
    monkeypatch: pytest.MonkeyPatch, expression: Callable[..., Path]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("NIX_CONFIG", f"substituters = {address}\nconnect-timeout = 30\n")
        started = time.monotonic()
        nix.build(expression("echo > $out"))
        assert time.monotonic() - started < 20
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.nix
@pytest.mark.machine_store
@pytest.mark.parametrize(
    "refusal",
    [
        "while setting up the build environment: mounting /proc: not permitted",
        "mounting /proc: Operation not permitted",
        "unable to set up a private mount namespace: Operation not permitted",
    ],
)
def test_a_machine_that_cannot_sandbox_builds_without(
    refusal: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    expression: Callable[..., Path],
) -> None:
    """Some containers let a namespace be made but not mounted in; Nix does not fall back then."""
    real = nix.find().programs
    shim = tmp_path / "bin" / "nix-build"
    shim.parent.mkdir()
    complaint = json.dumps(
        {
            "action": "msg",
            "level": 0,
            "msg": f"error: {refusal}",
        }
    )
    shim.write_text(
        "#!/bin/sh\n"
        'case "$*" in *"sandbox true"*)\n'
        f"  echo '@nix {complaint}' >&2; exit 1;;\n"
        "esac\n"
        f'exec {real}/nix-build "$@"\n'
    )
    shim.chmod(0o755)
    (shim.parent / "nix-store").symlink_to(real / "nix-store")
    monkeypatch.setenv("PATH", str(shim.parent), prepend=os.pathsep)
    assert nix.find().programs == shim.parent
    assert nix.build(expression("echo built > $out")).read_text() == "built\n"


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
    assert nix.rebuild(path) == 1
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


# Ends


@contextlib.contextmanager
def building(file: Path, seconds: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that builds *file*, and wait until its builder sleeps for *seconds*."""
    code = f"from pathlib import Path; from agentix import nix; nix.build(Path({str(file)!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: sleepers(seconds), "the builder starts")
        yield process
    finally:
        process.kill()
        process.wait()


def sleepers(seconds: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"sleep" in words and str(seconds).encode() in words:
                found.append(int(folder.name))
    return found


@pytest.mark.nix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_when_the_builder_of_a_bundle_dies_so_does_all_that_nix_runs(
    expression: Callable[..., Path], number: signal.Signals
) -> None:
    seconds = 1_000_000 + uuid.uuid4().int % 1_000_000
    file = expression(f"exec $busybox sleep {seconds}")
    with building(file, seconds) as process:
        process.send_signal(number)
        process.wait(PATIENCE)
        eventually(lambda: not sleepers(seconds), "the builder ends")


@pytest.mark.nix
def test_a_call_that_takes_too_long_is_ended(expression: Callable[..., Path]) -> None:
    seconds = 1_000_000 + uuid.uuid4().int % 1_000_000
    file = expression(f"exec $busybox sleep {seconds}")
    started = time.monotonic()
    with pytest.raises(NixError, match=r"nix-build did not end within 2 s and was stopped"):
        program.run(nix.find(), "nix-build", ["--no-out-link", str(file)], timeout=2)
    assert time.monotonic() - started < 2 + PATIENCE
    eventually(lambda: not sleepers(seconds), "the builder ends")
