"""Bundles as files: the manifest, the tar, and the cache that they are deployed into."""

from __future__ import annotations

from agentix.bundle.cache import BundleCache
from agentix.bundle.entry import CachedBundle
from agentix.bundle.manifest import Info, Manifest
from agentix.bundle.writer import WrittenBundle, write_bundle
from agentix.folders import cache_root

__all__ = [
    "BundleCache",
    "CachedBundle",
    "Info",
    "Manifest",
    "WrittenBundle",
    "cache_root",
    "write_bundle",
]
