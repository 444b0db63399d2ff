"""A place to build in: a clone, a user, and whatever else must not matter."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

STRANGER = 12345  # a user whom nobody knows
TIMEOUT = 900.0
# Where the user's own settings of pip and uv are, which say where to fetch from.
_SETTINGS = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")


def run(*words: str | Path) -> None:
    """Run a command that has to succeed."""
    subprocess.run(words, check=True, timeout=TIMEOUT)


@dataclass(frozen=True, slots=True)
class Place:
    """How one of the builds is done; ``store`` is a folder for a store of its own."""

    name: str
    clone: Path
    home: Path
    umask: str
    zone: str
    locale: str
    store: Path | None = None
    optimise: bool = False
    cores: int = 0
    stranger: bool = False

    def prepare(self, repository: Path, *, age: float = 0) -> None:
        """Clone *repository* as it is committed; its files look *age* seconds old."""
        self.home.mkdir(parents=True, exist_ok=True)
        run("git", "clone", "--quiet", repository, self.clone)
        for path in self.clone.rglob("*"):
            if age and ".git" not in path.parts:
                then = path.lstat().st_mtime - age
                os.utime(path, (then, then), follow_symlinks=False)
        if self.store is not None:
            self.store.mkdir(parents=True, exist_ok=True)
        if self.stranger:
            for folder in filter(None, (self.home, self.clone, self.store)):
                run("chown", "-R", f"{STRANGER}:{STRANGER}", folder)
                run("chmod", "-R", "go-rwx", folder)

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the build."""
        settings = f"auto-optimise-store = {str(self.optimise).lower()}\ncores = {self.cores}\n"
        return (
            os.environ
            | {"HOME": str(self.home), "TZ": self.zone, "LC_ALL": self.locale}
            | {"NIX_CONFIG": settings, "XDG_CONFIG_HOME": _SETTINGS, "XDG_CACHE_HOME": ""}
            | ({"NIX_REMOTE": str(self.store)} if self.store else {})
        )

    def build(self, project: str) -> Path:
        """Build the project in the folder *project* of the clone; return its tar."""
        agentix = Path(sys.executable).with_name("agentix")
        words = [str(agentix), "build", str(self.clone / project), "--format", "json"]
        if self.stranger:  # who may read this interpreter, wherever it lies, and nothing more
            capability = "+dac_read_search"
            who = f"--reuid={STRANGER} --regid={STRANGER} --clear-groups --inh-caps={capability}"
            words = ["setpriv", *who.split(), f"--ambient-caps={capability}", *words]
        result = subprocess.run(
            ["sh", "-c", f'umask {self.umask}; exec "$@"', "sh", *words],
            env=self.environment(),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        if result.returncode:
            raise RuntimeError(f"the build {self.name} failed: {result.stderr.strip()}")
        return Path(json.loads(result.stdout)["bundle"])

    def facts(self) -> dict[str, str]:
        """Return what is other in each place, in words."""
        return {
            "folder": str(self.clone),
            "user": str(STRANGER if self.stranger else os.geteuid()),
            "home": str(self.home),
            "umask": self.umask,
            "time zone": self.zone,
            "locale": self.locale,
            "cores": str(self.cores or os.cpu_count()),
            "store": str(self.store or "this machine's"),
            "auto-optimise-store": str(self.optimise).lower(),
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """Two builds of one project: where, what came of them, and how many files were hard links."""

    places: tuple[Place, Place]
    tars: tuple[Path, Path]
    hard_links: int

    @property
    def digests(self) -> tuple[str, str]:
        """The SHA-256 of either tar."""
        return _digest(self.tars[0]), _digest(self.tars[1])

    def lines(self) -> Iterator[str]:
        """Yield what was other in the two places, and what they gave."""
        facts = [place.facts() for place in self.places]
        for key in facts[0]:
            yield f"{key:<20} {facts[0][key]}  |  {facts[1][key]}"
        yield f"{'sha256 of the tar':<20} {'  |  '.join(self.digests)}"


def compare(project: Path, folder: Path) -> Compared:
    """Build *project* twice below *folder*, which others must be able to reach."""
    root = repository(project)
    name = str(project.relative_to(root))
    places = _places(folder)
    places[0].prepare(root)
    places[1].prepare(root, age=400_000_000)
    tars = (places[0].build(name), places[1].build(name))
    return Compared(places, tars, _hard_links(places[1].store) if places[1].store else 0)


def repository(project: Path) -> Path:
    """Return the Git repository that *project* lies in."""
    command = ["git", "-C", str(project), "rev-parse", "--show-toplevel"]
    return Path(subprocess.check_output(command, text=True).strip())


def _places(folder: Path) -> tuple[Place, Place]:
    here = Place("here", folder / "ours", folder / "home", "022", "UTC", "C.UTF-8")
    stranger = folder / "a stranger's home"
    there = Place(
        "elsewhere",
        stranger / "deeper/théirs",
        stranger,
        umask="077",
        zone="Pacific/Auckland",
        locale="C",
        store=stranger / "own-nix",
        optimise=True,
        cores=1,
        stranger=os.geteuid() == 0,
    )
    return here, there


def _digest(tar: Path) -> str:
    with tar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hard_links(store: Path) -> int:
    """Return how many files of a store share their content with another one."""
    files = (path for path in (store / "nix/store").glob("*/**/*") if not path.is_symlink())
    return sum(path.is_file() and path.lstat().st_nlink > 1 for path in files)
