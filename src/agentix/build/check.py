"""Proof that a build gives the same bytes every time: all of it once more, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix import nix
from agentix.bundle import write_bundle, writer
from agentix.bundle.compression import tar_chunks
from agentix.bundle.difference import tree_differences
from agentix.bundle.locate import opened
from agentix.bundle.pipe import pumped
from agentix.bundle.place import aligned
from agentix.errors import BundleError, NixError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agentix.nix import Nix, StorePath
    from agentix.progress import Progress


def check_steps(
    expression: Path, arguments: Mapping[str, str], store: Nix, progress: Progress
) -> None:
    """Build every derivation of *expression* again.

    NixError names the first file that differs, how, and where both builds are kept.
    """
    unlike = nix.rebuild(expression, arguments, nix=store, progress=progress).unlike
    if not unlike:
        return
    first, second = unlike[0]
    difference = next(tree_differences(first, second), None)
    others = ", ".join(_step(path) for path, _ in unlike[1:])
    more = f"; so are {others}" if others else ""
    raise NixError(
        f"{_step(first)} is not reproducible, a second build differs in {difference or 'its hash'};"
        f" compare {first} with {second}{more}"
    )


def _step(path: Path) -> str:
    return path.name.partition("-")[2]


def check_tar(
    tar: Path, store_path: Path, closure: Sequence[StorePath], progress: Progress
) -> None:
    """Write the bundle of *store_path* again, and compare with the file *tar* as it is on disk.

    BundleError says at which byte they differ, and where both are kept.
    """
    manifest = writer.describe(store_path, closure)
    total = sum(entry.size for entry in closure)
    with (
        opened(tar) as file,
        progress.step("compare", total=total, unit="bytes") as step,
        pumped(lambda write: writer.stream(manifest, closure, write, step)) as again,
    ):
        offset = 0
        for one, other in aligned(tar_chunks(file), again):
            if one != other:
                break
            offset += len(one)
        else:
            return
    second = tar.with_name(f"{tar.name}.check")
    write_bundle(store_path, closure, second)
    raise BundleError(
        f"{tar.name} is not what writing it again gives, from about byte {offset + 1} on;"
        f" compare {tar} with {second}"
    )
