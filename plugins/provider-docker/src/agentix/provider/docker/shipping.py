"""The bundle on another machine: a volume of the engine there, filled once and mounted by all.

It is filled through a container that is never started, by one process at a time: the container's
name is the lock. What has arrived is marked part by part, so that whoever comes after one that was
interrupted goes on where that one was.
"""

from __future__ import annotations

import tarfile
import time
from typing import TYPE_CHECKING, Final

from docker.types import Mount

from agentix.provider.base import Owner
from agentix.provider.docker import container
from agentix.provider.docker.problems import RefusedError
from agentix.provider.kit import StoppedError, store_tar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.progress import Progress, Step
    from agentix.provider.docker.engine import Engine
    from agentix.provider.docker.facts import Image
    from agentix.provider.kit import CachedBundle, Stop

BUNDLE: Final = "agentix.bundle"
_END: Final = bytes(2 * tarfile.BLOCKSIZE)
_MARKS: Final = "store/.agentix"
_WHOLE: Final = "whole"
_PART: Final = 8 << 20
_LOOK: Final = 0.5
_STILL: Final = 120.0
"""Seconds after which another shipper of which nothing is heard is taken for gone."""


def volume(bundle: CachedBundle) -> str:
    """Return the name of the volume with *bundle*."""
    return f"agentix-{bundle.digest[:32]}"


class Shipment:
    """A *bundle* for the container *name* from *image*, which has its volume mounted."""

    def __init__(self, engine: Engine, name: str, bundle: CachedBundle, image: Image) -> None:
        self.engine, self.name, self.bundle, self.image = engine, name, bundle, image
        self._stopped = False

    def arrived(self) -> bool:
        """Tell whether all of it is there."""
        return self.engine.kind(self.name, f"/nix/{_MARKS}/{_WHOLE}") is not None

    def send(self, stop: Stop, progress: Progress) -> None:
        """Bring what is missing; wait for another who is at it.

        Raises ProviderError when the engine refuses, StoppedError when it is told to stop.
        """
        if self.arrived():
            return
        with progress.step(
            f"ship {self.bundle.manifest.title} to {self.engine.where.url}",
            total=sum(each.size for each in self.bundle.manifest.closure.values()),
            unit="bytes",
        ) as step:
            heard, marks = time.monotonic(), -1
            while not self.arrived():
                if self._lock():
                    try:
                        if not self.arrived():
                            self._fill(stop, step)
                    except StoppedError:
                        self._stopped = True
                        raise
                    finally:
                        self.engine.remove(self._shipper)
                    return
                there = len(self._marks())
                if there != marks:
                    heard, marks = time.monotonic(), there
                if self._is_left(still=time.monotonic() - heard > _STILL):
                    self.engine.remove(self._shipper)
                else:
                    stop.sleep(_LOOK)

    def undo(self) -> None:
        """Remove what has been sent if it was stopped, once nothing has it mounted.

        What a failure interrupted stays, for the next one to go on with.
        """
        if self._stopped:
            self.engine.drop_volume(volume(self.bundle))

    @property
    def _shipper(self) -> str:
        return f"agentix-ship-{self.bundle.digest[:32]}"

    def _lock(self) -> bool:
        """Make the container through which it goes; False when another process has."""
        settings = {
            "image": self.image.id,
            "entrypoint": ["-"],
            "labels": {container.PROCESS: Owner.current().text()},
        }
        mount = Mount("/nix", volume(self.bundle), type="volume", no_copy=True)
        try:
            self.engine.create(self._shipper, settings, {"mounts": [mount], "network_mode": "none"})
        except RefusedError as error:
            if error.status != 409:
                raise
            return False
        return True

    def _is_left(self, *, still: bool) -> bool:
        """Tell whether the other shipper is gone, as far as can be told from here."""
        state = self.engine.state(self._shipper)
        if state is None:
            return False
        owner = Owner.parse(state.labels.get(container.PROCESS, ""))
        lives = owner.lives() if owner is not None else None
        return lives is False or (lives is None and still)

    def _marks(self) -> set[str]:
        return self.engine.names(self.name, f"/nix/{_MARKS}")

    def _fill(self, stop: Stop, step: Step) -> None:
        put, there = self.engine.put, self._marks()
        put(self._shipper, "/nix", _layout(self.bundle))
        part: list[str] = []
        size = 0
        sizes = {name: each.size for name, each in self.bundle.manifest.closure.items()}
        for name in sizes:
            if name in there:
                step.advance(sizes[name])
                continue
            part.append(name)
            size += sizes[name]
            if size >= _PART:
                put(self._shipper, "/nix", self._part(part, stop, step))
                part, size = [], 0
        put(self._shipper, "/nix", self._part(part, stop, step))
        put(self._shipper, "/nix", iter((_member(f"{_MARKS}/{_WHOLE}"), _END)))

    def _part(self, names: list[str], stop: Stop, step: Step) -> Iterator[bytes]:
        for name in names:
            for piece in store_tar(self.bundle.nix / "store" / name, f"store/{name}"):
                stop.check()
                yield piece
                step.advance(len(piece))
        # Last, so that each says that all before it has arrived.
        yield from (_member(f"{_MARKS}/{name}") for name in names)
        yield _END


def _layout(bundle: CachedBundle) -> Iterator[bytes]:
    yield from (_member(name, tarfile.DIRTYPE) for name in ("store", _MARKS))
    # Where each sandbox has a folder of its own; some engines give that the mode of what it covers.
    yield _member("run", tarfile.DIRTYPE, mode=0o1777)
    yield _member("runtime", tarfile.SYMTYPE, f"/nix/store/{bundle.manifest.root}/runtime")
    yield _END


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o555) -> bytes:
    """Return the member of a tar for what has no content."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    member.mode = mode
    return member.tobuf()
