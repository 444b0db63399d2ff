"""Check everything that needs no run: formatting, lint, types and layers.

Plugins add modules inside the ``agentix`` package from folders of their own. Type checkers and
import-linter see one folder a package, so both look at a merged tree of links.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MERGED = ROOT / ".cache" / "merged"
TESTS = (
    "tests",
    "tests/benchmarks",
    "tests/projects/numpy-task",
    "tests/projects/system-tools",
    "nix/builders",
)
BIN = Path(sys.executable).parent


def merge() -> None:
    """Link every distribution's sources into one tree."""
    shutil.rmtree(MERGED, ignore_errors=True)
    for source in (ROOT / "src", ROOT / "runtime/src", *sorted(ROOT.glob("plugins/*/src"))):
        shutil.copytree(
            source,
            MERGED,
            copy_function=os.symlink,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )


def run(title: str, *command: str) -> bool:
    """Run one check; show what it printed only when it failed, with the real files' names."""
    sources = [MERGED, *(ROOT / folder for folder in TESTS)]
    sources += [*ROOT.glob("examples/*/src"), *ROOT.glob("examples/*")]
    search = os.pathsep.join(map(str, sources))
    environment = dict(os.environ, PYTHONPATH=str(MERGED), MYPYPATH=search)
    result = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    print(f"check: {title:<10} {'failed' if result.returncode else 'ok'}", flush=True)
    if result.returncode:
        print(re.sub(r"\.cache/merged/[\w./-]+", real_name, result.stdout + result.stderr))
    return result.returncode == 0


def real_name(match: re.Match[str]) -> str:
    """Name the file that a link of the merged tree stands for."""
    path = ROOT / match[0]
    return str(path.resolve().relative_to(ROOT)) if path.exists() else match[0]


def main() -> None:
    """Run every check, then say with the exit code whether all of them passed."""
    merge()
    examples = sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.glob("examples/*/*.toml"))
    passed = [
        run("format", "ruff", "format", "--check", "."),
        run("lint", "ruff", "check", "."),
        run("types", "mypy", str(MERGED.relative_to(ROOT)), "tools"),
        run("tests", "mypy", "--explicit-package-bases", "tests"),
        run("builders", "mypy", "nix/builders"),
        *(run(f"types {name}", "mypy", name) for name in ["examples/demo.py", *examples]),
        run("layers", "lint-imports", "--no-cache"),
    ]
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
