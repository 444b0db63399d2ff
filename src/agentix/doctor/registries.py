"""Where packages come from: each place is asked as its user's own client would ask it."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp

from agentix.build.debian.archive import MIRROR_VARIABLE, find_mirror
from agentix.build.lock import uv
from agentix.build.session import open_session
from agentix.build.toolchain import seeds, toolchains
from agentix.doctor.program import PATIENCE, ask
from agentix.errors import AgentixError, LockError
from agentix.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

_WITHOUT = "what the store has can be built with --offline"


def python_index() -> Iterable[Finding]:
    """Ask, through uv and with its settings for this folder, for what every build starts from."""
    wanted = seeds().wheels[0]
    begun = time.monotonic()
    words = ("pip", "compile", "-", "--quiet", "--no-deps", "--no-cache", "--no-header")
    try:
        asyncio.run(
            uv.run(
                *words,
                cwd=Path(),
                stdin=f"{wanted.package}=={wanted.version}",
                environment={"UV_HTTP_TIMEOUT": f"{PATIENCE:.0f}", "UV_HTTP_RETRIES": "0"},
                timeout=PATIENCE,
            )
        )
    except LockError as error:
        advice = f"check the network and uv's index settings; {_WITHOUT}"
        yield Finding("problem", f"does not give {wanted.package}: {error}", advice)
    else:
        yield Finding("ok", f"answers uv in {time.monotonic() - begun:.1f} s")


def debian_mirror() -> Iterable[Finding]:
    """Ask the Debian archive that apt uses for its newest pinned suite."""
    suite = list(toolchains().values())[-1].suite
    advice = f"check the network, or set {MIRROR_VARIABLE} to another mirror; {_WITHOUT}"
    begun = time.monotonic()

    async def look() -> Finding:
        mirror = await find_mirror()
        where = urlsplit(mirror).hostname or "the mirror"
        try:
            async with (
                open_session(1) as session,
                session.get(f"{mirror}/dists/{suite}/InRelease") as response,
            ):
                if response.status != 200:
                    return Finding("problem", f"{where} answers {response.status}", advice)
        except aiohttp.ClientError as error:
            reason = str(error) or type(error).__name__
            return Finding("problem", f"{where} cannot be reached: {reason}", advice)
        return Finding("ok", f"{where} answers in {time.monotonic() - begun:.1f} s")

    async def bounded() -> Finding:
        try:
            async with asyncio.timeout(PATIENCE):
                return await look()
        except TimeoutError:
            return Finding("problem", f"does not answer within {PATIENCE:g} s", advice)

    yield asyncio.run(bounded())


def npm_registry() -> Iterable[Finding]:
    """Ask, through npm, for npm itself; only projects with tools from there need it."""
    needed = "only `npm = [...]` in a project needs it"
    program = shutil.which("npm")
    if program is None:
        advice = "install npm (Debian: apt-get install npm)"
        yield Finding("note", f"npm is not installed; {needed}", advice)
        return
    limits = ("--fetch-retries=0", f"--fetch-timeout={PATIENCE * 1000:.0f}", "--prefer-online")
    begun = time.monotonic()
    advice = "check the network and npm's settings (`npm config get registry`)"
    try:
        ended = ask([program, "view", "npm", "version", "--no-update-notifier", *limits])
    except AgentixError:
        yield Finding("note", f"does not answer npm within {PATIENCE:g} s; {needed}", advice)
        return
    if ended.status == 0:
        yield Finding("ok", f"answers npm in {time.monotonic() - begun:.1f} s")
    else:
        yield Finding("note", f"does not answer npm: {npm_reason(ended.errors)}; {needed}", advice)


def npm_reason(errors: str) -> str:
    """Return the code of npm's error, such as ECONNREFUSED; the rest may have addresses in it."""
    found = re.search(r"^npm (?:ERR!|error) code (\w+)", errors, re.MULTILINE)
    return found[1] if found else "it gives no reason"
