"""The real bundle that the image tests call into, built once a session."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentix.bundle import CachedBundle

PROJECT = Path(__file__).parents[1] / "projects/numpy-task"


def numpy_task(scratch: Path, platform: str | None = None) -> CachedBundle:
    """Build the project numpy-task, deploy it below *scratch*, and make its module importable."""
    from agentix.build.build import build_bundle
    from agentix.bundle import BundleCache

    if str(PROJECT) not in sys.path:
        sys.path.insert(0, str(PROJECT))
    # Whoever has no Nix gets it from who has.
    if platform is None and (built := os.environ.get("AGENTIX_TEST_BUNDLE")):
        return BundleCache().open(built)
    # A copy, so that no lock or output appears among the sources.
    project = shutil.copytree(PROJECT, scratch / PROJECT.name)
    built_here = build_bundle(project, output=scratch, platform=platform)
    scratch.chmod(0o755)
    # A folder whose name no engine could take in the form a:b:ro.
    return BundleCache(Path(os.fspath(scratch), "a cache: of bundles")).open(built_here.path)
