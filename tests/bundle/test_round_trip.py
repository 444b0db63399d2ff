"""Whatever a store path may hold goes into a tar and comes out the same."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentix.bundle import BundleCache
from agentix.bundle.nar import nar_hash
from bundle.handmade import Link, Program, Workshop, listing, nar, store_name

_NAMES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=40).map(
        lambda text: text.encode()
    ),
    st.binary(min_size=1, max_size=60),
    st.integers(90, 255).map(lambda length: b"n" * length),
).filter(lambda name: name not in (b".", b"..") and not {0, 47} & set(name) and len(name) < 256)
_TARGETS = _NAMES.map(lambda name: Link(name.decode(errors="surrogateescape")))
_LEAVES = st.one_of(
    st.binary(max_size=2000),
    st.binary(max_size=100).map(Program),
    _TARGETS,
    st.sampled_from([511, 512, 513, 70_000, 1_100_000]).map(lambda size: b"." * size),
)
_TREES = st.recursive(
    _LEAVES, lambda below: st.dictionaries(_NAMES, below, max_size=5), max_leaves=15
)


@given(trees=st.dictionaries(st.sampled_from(["a", "a-1", "b.2", "z"]), _TREES, max_size=3))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_tree_survives_the_journey(trees: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = Workshop(folder).bundle(trees)
        written = bundle.write(folder / "x.tar")
        entry = BundleCache(folder / "one").deploy(written.path, expect=written.sha256)
        for name, tree in bundle.trees.items():
            found = nar_hash(entry.nix / "store" / store_name(name))
            assert found.sha256 == hashlib.sha256(nar(tree)).hexdigest()
        direct = BundleCache(folder / "two").deploy_store_path(bundle.root, bundle.closure)
        assert direct.digest == entry.digest
        assert listing(direct.path) == listing(entry.path)
