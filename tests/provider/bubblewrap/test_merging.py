"""How an image's own Nix store and the bundle's become one, decided without mounting anything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from stub_runtime import ROOT, make_entry

from agentix.bundle.entry import load_entry
from agentix.errors import ImageError
from agentix.provider.bubblewrap.layout import Overlay
from agentix.provider.bubblewrap.merging import compose
from agentix.provider.images.store import Image

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.provider.bubblewrap.merging import Root

WHOLE = {"/": "ext4"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "image"
    (root / "nix/store/theirs").mkdir(parents=True)
    (root / "nix/var").mkdir()
    (root / "etc").mkdir()
    return root


def composed(root: Path, mounted: dict[str, str], *, host: bool = False) -> Root:
    entry = root.with_name(f"sha256-{'5' * 64}")
    bundle = load_entry(entry if entry.exists() else make_entry(root.parent))
    return compose(Image("task", root, host=host), bundle, mounted)


def options(root: Root) -> str:
    return " ".join(part if isinstance(part, str) else part.place for part in root.nix)


def test_an_image_without_a_store_gets_the_bundles(tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    made = composed(tmp_path / "image", WHOLE)
    assert options(made).endswith("/nix /nix")
    assert "--ro-bind" in options(made)


def test_store_paths_of_the_bundle_lie_beside_the_images(root: Path) -> None:
    made = composed(root, WHOLE)
    assert made.pieces == [Overlay(str(root), "/")]
    assert f"/nix/store/{ROOT} /nix/store/{ROOT} --ro-bind" in options(made)
    assert "--ro-overlay" not in options(made)


def test_a_store_on_a_file_system_of_its_own_stays_in_place(root: Path) -> None:
    made = composed(root, {**WHOLE, f"{root}/nix/store": "xfs"})
    assert Overlay(f"{root}/nix/store", "/nix/store") in made.pieces
    assert "--ro-overlay" not in options(made)


@pytest.mark.parametrize("name", ["nix/store/" + ROOT, "nix/runtime", "nix/run", "nix/store"])
def test_links_in_a_store_do_not_lead_bubblewrap_to_the_host(root: Path, name: str) -> None:
    """What is in the way is covered: bubblewrap sees the host as /oldroot while it mounts."""
    if name == "nix/store":
        (root / name).rename(root / "nix/elsewhere")
        (root / name).symlink_to("elsewhere")
    else:
        (root / name).symlink_to("/oldroot/etc")
    made = composed(root, WHOLE)
    assert made.fresh
    assert options(made).startswith("--perms 0755 --tmpfs /nix ")
    assert f"--overlay-src {root}/nix/" in options(made)
    assert "/nix/var" in options(made)


def test_a_store_of_somebody_else_is_joined(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert "--ro-overlay /nix/store" in options(composed(root, WHOLE))


def test_a_store_that_takes_no_overlay_is_refused_with_the_reason(root: Path) -> None:
    mounted = {**WHOLE, f"{root}/nix": "fuse.something"}
    with pytest.raises(ImageError, match=r"store of its own.*takes no overlay \(fuse\.something\)"):
        composed(root, mounted)
    for name in ("a", "b"):
        mounted = {**WHOLE, f"{root}/nix/store/{name}": "ext4"}
    (root / "nix/store" / ROOT).symlink_to("/etc")
    with pytest.raises(ImageError, match="has file systems mounted below it"):
        composed(root, mounted)


def test_the_hosts_store_is_hidden_where_it_cannot_be_merged_unless_programs_are_in_it(
    root: Path,
) -> None:
    mounted = {**WHOLE, f"{root}/nix": "fuse.something"}
    assert options(composed(root, mounted, host=True)).endswith("/nix /nix")
    (root / "bin").mkdir()
    (root / "bin/sh").symlink_to("/nix/store/theirs/bin/sh")
    with pytest.raises(ImageError, match="store of its own"):
        composed(root, mounted, host=True)
