"""A function to call inside a sandbox. Nothing here knows about Agentix."""

import json
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Greeting:
    """What came back, and who answered."""

    text: str
    python: str
    libc: str
    image: list[str]


def greet(name: str) -> Greeting:
    """Greet *name* with the help of ``jq``, which the bundle brings along."""
    sentence = subprocess.run(
        ["jq", "--raw-output", '"\\(.greeting), \\(.name)!"'],
        input=json.dumps({"greeting": "Hello", "name": name}),
        capture_output=True,
        check=True,
        text=True,
    ).stdout.strip()
    libc = " ".join(platform.libc_ver())
    root = sorted(entry.name for entry in Path("/").iterdir())
    return Greeting(sentence, platform.python_version(), libc, root)
