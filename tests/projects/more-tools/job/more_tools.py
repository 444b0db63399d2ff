"""What the tests call in each image."""

from __future__ import annotations

import os
import shutil
import subprocess


def run(*words: str, **environment: str) -> str:
    """Return what a program prints."""
    done = subprocess.run(
        words, env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def places(*names: str) -> dict[str, str | None]:
    """Return where programs are found."""
    return {name: shutil.which(name) for name in names}


def search(pattern: str, code: str) -> str:
    """Return what ast-grep finds in a piece of Python."""
    words = ["ast-grep", "run", "--lang", "python", "--pattern", pattern, "--stdin"]
    done = subprocess.run(words, input=code, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
