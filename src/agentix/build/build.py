"""From a project to its bundle in one call: lock, fetch, build, export."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentix.build.record import recall
from agentix.build.request import Request
from agentix.progress import SILENT, Progress, Timed
from agentix.replacing import draft_of

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.build.built import BuiltBundle


def build_bundle(
    root: Path,
    *,
    output: Path | None = None,
    name: str | None = None,
    platform: str | None = None,
    python: str | None = None,
    offline: bool = False,
    check: bool = False,
    compress: bool | None = None,
    progress: Progress = SILENT,
) -> BuiltBundle:
    """Build the bundle of the project in the folder *root* and write its tar.

    *output* is a ``.tar`` or ``.tar.zst`` file or a folder (``dist`` in the project by default),
    *name* overrides the bundle's, *platform* and *python* choose what it runs on. Locks and fetches
    what is missing, or with *offline* says what that is. *check* builds again and compares every
    byte. *compress* writes a ``.tar.zst`` (None: if *output* is one); the digest is the tar's.

    Raises ProjectError, LockError, FetchError, NixError or BundleError; then what was there before
    is there still, and nothing half-made is.
    """
    request = Request.of(
        root, output=output, name=name, platform=platform, python=python, compress=compress
    )
    if not check and (built := recall(request)) is not None:
        if draft_of(built.path).exists():
            from agentix.bundle.writer import sweep

            sweep(built.path)
        return built
    # Only now what takes long to import: nine times out of ten an unchanged project ends above.
    from agentix.build.realise import realise

    timed = Timed(progress)
    return replace(realise(request, offline, check, timed), timings=timed.seconds)
