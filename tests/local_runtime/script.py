"""A program that calls its own functions: run as a script, its classes live in ``__main__``."""

from __future__ import annotations

import asyncio
import enum
import sys
from dataclasses import dataclass

from agentix import RuntimeClient


class Mode(enum.Enum):
    """An enum of the script."""

    FAST = 1


@dataclass(frozen=True)
class Config:
    """A dataclass of the script."""

    mode: Mode
    size: int


def job(config: Config) -> Config:
    """Tell that the classes are this module's own here too."""
    assert isinstance(config, Config)
    assert config.mode is Mode.FAST
    return Config(config.mode, config.size + 1)


async def main(url: str, token: str) -> None:
    """Call the job."""
    async with RuntimeClient(url, token=token) as client:
        found = await client.remote(job, Config(Mode.FAST, 1))
        assert type(found) is Config
        assert found == Config(Mode.FAST, 2)
        print(__name__, found.size)  # noqa: T201 - for the test to see


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
