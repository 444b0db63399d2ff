"""What the pages say can be typed and followed: every link, command, option and target is there."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from agentix.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[1]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    for link in links:
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_readme_leads_to_every_page() -> None:
    more = (REPOSITORY / "README.md").read_text().partition("\n## More\n")[2]
    assert more
    for page in REPOSITORY.glob("docs/*.md"):
        assert f"(docs/{page.name})" in more, page.name


def typed(text: str) -> Iterator[str]:
    """Find what a page says to type: in lines of blocks, after a prompt, and in running text."""
    yield from re.findall(r"^(?:    |\$ )(agentix .+?)(?: +#.*)?$", text, re.MULTILINE)
    yield from re.findall(r"(?<!`)`(agentix [^`]+)`(?!`)", re.sub(r"\s+", " ", text))


@cache
def root() -> Any:
    return typer.main.get_command(app)


def known(words: list[str]) -> bool:
    """Say whether *words* name a command with options that it has."""
    command, context = root(), None
    while words:
        word = words.pop(0)
        if hasattr(command, "get_command") and not word.startswith("-"):
            context = command.make_context(word, [], parent=context, resilient_parsing=True)
            if (command := command.get_command(context, word)) is None:
                return False
        elif word.startswith("-"):
            options = {name for parameter in command.params for name in parameter.opts}
            if word.partition("=")[0] not in options:
                return False
    return True


@each_page
def test_commands_and_their_options_exist(page: Path) -> None:
    for command in typed(page.read_text()):
        assert known(shlex.split(command)[1:]), command


def test_a_command_or_option_that_is_not_there_would_be_missed() -> None:
    assert known(["bundle", "pull", "x", "--platform", "linux/arm64"])
    assert not known(["bundle", "fetch", "x"])
    assert not known(["lock", "--update"])


@each_page
def test_make_has_what_a_page_tells_to_make(page: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert targets >= set(re.findall(r"(?:^    |`)make (\w+)", page.read_text(), re.MULTILINE))
