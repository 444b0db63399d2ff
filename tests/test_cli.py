"""The command line: one screen of help, one line an error, exit codes that scripts can rely on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

AGENTIX = Path(sys.executable).with_name("agentix")


def agentix(
    *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run([AGENTIX, *arguments], capture_output=True, text=True, env=env)


def every_command(group: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command below *group*, and of the groups."""
    yield words
    context = group.make_context("agentix", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from every_command(command, *words, name)
        else:
            yield (*words, name)


def test_every_command_explains_itself_on_one_screen() -> None:
    from agentix.cli.app import app

    found = list(every_command(typer.main.get_command(app)))
    runner = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    for words in found:
        done = runner.invoke(app, [*words, "--help"], prog_name="agentix")
        assert done.exit_code == 0, words
        assert f"Usage: {' '.join(('agentix', *words))} " in done.stdout
        assert len(done.stdout.rstrip().splitlines()) <= 24, words
    ours = {"init", "build", "lock", "fetch", "bundle", "deploy", "cache", "sandbox", "plugin"}
    assert {words[0] for words in found if words} >= ours | {"doctor"}
    assert ("deploy", "bubblewrap") in found


def test_whatever_a_script_would_read_is_to_be_had_as_json() -> None:
    from agentix.cli.app import app

    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="agentix")
    for words in every_command(group):
        command: Any = group
        for word in words:
            command = command.get_command(context, word)
        if words and not hasattr(command, "list_commands"):
            options = {option for parameter in command.params for option in parameter.opts}
            assert "--format" in options, words


def test_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert agentix("--version").stdout == f"agentix {version('agentix')}\n"


@pytest.mark.parametrize("arguments", [["nosuch"], ["build", "--nosuch"], ["deploy", "bubblewrap"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    done = agentix(*arguments)
    assert (done.returncode, done.stdout) == (2, "")


def test_an_error_is_one_line_and_exits_with_1(tmp_path: Path) -> None:
    done = agentix("build", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("agentix: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("place", ["before", "after"])
def test_verbose_shows_the_traceback_wherever_it_stands(tmp_path: Path, place: str) -> None:
    words = ["build", str(tmp_path)]
    done = agentix(*(["--verbose", *words] if place == "before" else [*words, "--verbose"]))
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert "ProjectError" in done.stderr


def test_an_unexpected_failure_is_one_line_too(tmp_path: Path) -> None:
    code = (
        "import sys, agentix.build.build as b\n"
        "def broken(*a, **k): raise ZeroDivisionError('no')\n"
        "b.build_bundle = broken\n"
        f"sys.argv = ['agentix', 'build', {str(tmp_path)!r}]\n"
        "from agentix.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("agentix: unexpected ZeroDivisionError: no")
    assert len(done.stderr.splitlines()) == 1


def test_what_the_system_refuses_is_not_called_unexpected(tmp_path: Path) -> None:
    code = (
        "import sys, agentix.build.build as b\n"
        "def refused(*a, **k): open('/nonexistent/file')\n"
        "b.build_bundle = refused\n"
        f"sys.argv = ['agentix', 'build', {str(tmp_path)!r}]\n"
        "from agentix.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "agentix: /nonexistent/file: No such file or directory; --verbose shows what needed it\n"
    )


def test_an_interrupt_while_the_command_loads_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    code = "from agentix.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "agentix: interrupted\n")


def test_a_reader_that_leaves_early_makes_no_traceback() -> None:
    script = f'"{AGENTIX}" plugin list --format json | head -c 1'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
