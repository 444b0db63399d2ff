"""TOML that anybody may have written: what would take all memory or the whole stack is refused."""

from __future__ import annotations

import re
import tomllib
from typing import Any

# For a key of n parts tomllib keeps n² of them: some kilobytes of text would fill any memory.
_LONG_KEY = re.compile(
    r"""(?<![\w."'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){64}"""
)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables in *text*; tomllib.TOMLDecodeError when there are none, or odd ones."""
    if _LONG_KEY.search(text):
        raise tomllib.TOMLDecodeError("a key in it has more than 64 parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None
