"""Build a project in two places, and with two Debians, and compare: ``make reproduce``.

Says what was other in each place. The exit code is 0 when every byte is the same; otherwise what
differs is told as ``agentix bundle diff`` does.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/hello-world"


def main() -> int:
    """Compare, and say what with what."""
    parser = argparse.ArgumentParser(prog="reproduce", description="Build twice and compare.")
    parser.add_argument("project", type=Path, nargs="?", default=EXAMPLE)
    project: Path = parser.parse_args().project.resolve()
    folder = Path(tempfile.mkdtemp(prefix="agentix-reproduce-"))
    folder.chmod(0o755)  # for the other user
    try:
        same = [places(project, folder), debians(project, folder)]
    finally:
        subprocess.run(["chmod", "-R", "u+w", folder], check=False)
        shutil.rmtree(folder)
    say("every byte is the same" if all(same) else "NOT the same")
    return not all(same)


def say(text: str) -> None:
    """Print a line at once."""
    print(f"reproduce: {text}", flush=True)


def places(project: Path, folder: Path) -> bool:
    """Build two clones, in places that have as little as possible in common."""
    from reproduce.place import compare

    say(f"{project} as it is committed, twice")
    compared = compare(project, folder)
    for line in compared.lines():
        print(f"  {line}")
    if len(set(compared.digests)) == 1:
        return True
    agentix = Path(sys.executable).with_name("agentix")
    subprocess.run([str(agentix), "bundle", "diff", *map(str, compared.tars)], check=False)
    return False


def debians(project: Path, folder: Path) -> bool:
    """Build the store paths of the bundle with another Debian's Nix, where one can be had."""
    from reproduce import debian

    if reason := debian.missing():
        say(f"not with another Debian: that {reason}")
        return True
    say(f"{project} as it is, with {debian.versions()}")
    here, there = debian.both(project, folder)
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            print(f"  {name}: {here.get(name)}  |  {there.get(name)}")
    print(f"  {len(here)} store paths  |  {len(there)}")
    return here == there


if __name__ == "__main__":
    sys.exit(main())
