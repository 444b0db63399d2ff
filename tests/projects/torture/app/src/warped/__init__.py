"""What the project finds of itself and of its dependencies, once it is a bundle."""

import csv
import hashlib
import importlib
import importlib.metadata
import importlib.resources
import io
import os
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path


def versions(names: list[str]) -> dict[str, str]:
    """Return the version that each installed distribution says it has."""
    return {name: importlib.metadata.version(name) for name in names}


def entry_points() -> dict[str, str]:
    """Load what is registered for this project's own group."""
    found = importlib.metadata.entry_points(group="torture.parts")
    return {point.name: point.load().__module__ for point in found}


def data() -> dict[str, tuple[bytes, bool]]:
    """Return the content of each file of package data, and whether it is executable."""
    folder = importlib.resources.files("warped") / "data"
    found = {}
    for entry in folder.iterdir():
        with importlib.resources.as_file(entry) as path:
            found[entry.name] = (entry.read_bytes(), os.access(path, os.X_OK))
    return found


def data_outside() -> dict[str, str]:
    """Return the data files that were installed outside of any package."""
    root = Path(sys.prefix, "share/torture")
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def constants(names: list[str]) -> dict[str, str]:
    """Return module-level constants, each given as ``module:name``."""
    split = (name.split(":") for name in names)
    return {module: str(getattr(importlib.import_module(module), name)) for module, name in split}


def records(names: list[str]) -> dict[str, list[str]]:
    """Return, for each distribution, the files of which the RECORD is not true."""
    return {name: [row[0] for row in _record(name) if not _is_true(name, *row)] for name in names}


def _record(name: str) -> list[list[str]]:
    # Not importlib.metadata.files(), which splits a name that has a line break in it.
    text = importlib.metadata.distribution(name).read_text("RECORD") or "nothing,,"
    return list(csv.reader(io.StringIO(text, newline="")))


def _is_true(name: str, file: str, checksum: str, size: str) -> bool:
    path = Path(str(importlib.metadata.distribution(name).locate_file(file)))
    if not path.is_file():
        return False
    if not checksum:
        return True
    algorithm, _, expected = checksum.partition("=")
    digest = hashlib.new(algorithm, path.read_bytes()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode() == expected


def program(command: list[str]) -> tuple[int, str, str]:
    """Run a program; ``python`` is this very interpreter."""
    words = [sys.executable if word == "python" else word for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def imported(name: str) -> bool:
    """Say whether a module was imported before anybody here asked for it."""
    return name in sys.modules
