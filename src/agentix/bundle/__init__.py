"""Bundles as files: the manifest, the tar, and the cache that they are deployed into."""

from __future__ import annotations

from agentix.bundle.cache import BundleCache, cache_root
from agentix.bundle.entry import CachedBundle
from agentix.bundle.manifest import Info, Manifest
from agentix.bundle.writer import WrittenBundle, write_bundle

__all__ = [
    "BundleCache",
    "CachedBundle",
    "Info",
    "Manifest",
    "WrittenBundle",
    "cache_root",
    "write_bundle",
]
