"""Tools from npm, from Nix files, and those of a plugin: built for real, and run in sandboxes.

One project has them all: a native tool and one for Node, of which npm resolves the dependencies.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from heard import Heard
from tiny_job import AGENTIX

from agentix import SandboxConfig
from agentix.build.build import build_bundle
from agentix.build.lock import load
from agentix.errors import FetchError, NixError
from agentix.provider.bubblewrap import BubblewrapProviderConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from images import TaskImage

    from agentix.build.built import BuiltBundle

pytestmark = [
    pytest.mark.nix,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]
REPOSITORY = Path(__file__).parents[2]
PROJECT = REPOSITORY / "tests/projects/more-tools"
SYSTEM = f"{os.uname().machine}-linux"
# What stands for nixpkgs, which cannot be fetched everywhere: a folder with one package, unfree.
STAND_IN = """
{ system, config, overlays }:
let
  agentix = import %(nix)s { inherit system; };
  busybox = "${(agentix.seeds agentix.host).busybox}/bin/busybox";
in
{
  hello =
    if !config.allowUnfree then throw "hello is unfree" else derivation {
      name = "hello";
      inherit system;
      builder = busybox;
      args = [ "sh" "-c" "${busybox} mkdir -p $out/bin; ${busybox} cp ${busybox} $out/bin/hello" ];
    };
}
"""


@dataclass(frozen=True)
class Built:
    """The project, its bundle, and what building it has told."""

    root: Path
    bundle: BuiltBundle
    heard: tuple[str, ...] = ()

    @property
    def manifest(self) -> dict[str, Any]:
        with tarfile.open(self.bundle.path) as archive:
            member = archive.next()
            assert member is not None
            file = archive.extractfile(member)
            assert file is not None
            value: dict[str, Any] = json.load(file)
            return value


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    scratch = tmp_path_factory.mktemp("more-tools")
    sys.path.insert(0, str(PROJECT / "job"))
    shutil.copytree(PROJECT, scratch, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CI", raising=False)
        heard = Heard()
        bundle = build_bundle(scratch / "job", output=scratch, progress=heard)
        return Built(scratch / "job", bundle, tuple(heard.outcomes))


@pytest.mark.bubblewrap
@pytest.mark.parametrize("name", ["busybox", "empty"])
async def test_they_run_in_an_image_that_has_nothing(
    built: Built, task_image: Callable[[str], TaskImage], name: str
) -> None:
    import more_tools

    config = SandboxConfig(image=str(task_image(name).rootfs), bundle=built.bundle.path)
    async with BubblewrapProviderConfig().to_provider().session(config) as sandbox:
        found = await sandbox.remote(more_tools.search, "f($A)", "x = f(1)\n")
        assert "f(1)" in found
        node_which = await sandbox.remote(more_tools.run, "node-which", "jq")
        assert node_which == "/nix/runtime/bin/jq"
        places = await sandbox.remote(more_tools.places, "node", "plain", "which", "ast-grep")
        assert places["node"] == "/nix/runtime/bin/node"
        assert places["plain"] == "/nix/runtime/bin/plain"
        assert places["ast-grep"] == "/nix/runtime/bin/ast-grep"
        if name == "busybox":
            assert await sandbox.remote(more_tools.run, "plain") == "plain"
            assert places["which"] != "/nix/runtime/bin/which"  # the image's own wins
        # What others have built must not meet an image's libraries; a tool of ours does not.
        image = {"LD_LIBRARY_PATH": "/lib", "LD_PRELOAD": "/nope.so"}
        hello = await sandbox.remote(more_tools.run, "/nix/runtime/bin/hello", **image)
        assert hello == "hello from Nix, unset"
        version = await sandbox.remote(more_tools.run, "ast-grep", "--version", **image)
        assert version == "ast-grep 0.51.1"


def test_the_lock_says_what_was_fetched_and_who_asked_and_not_where(built: Built) -> None:
    text = (built.root / "bundle.lock").read_text()
    assert "://" not in text
    lock = load(built.root / "bundle.lock")
    assert [tool.release for tool in lock.npm] == ["@ast-grep/cli@0.51.1", "which@4.0.0"]
    assert {p for tool in lock.npm for p in tool.targets} == {"linux/amd64", "linux/arm64"}
    assert lock.system == ("jq", "nodejs")
    assert lock.plugins is not None
    assert lock.plugins["acme-tools"].lines() == [
        "system jq",
        "npm which@4.0.0",
        "nix acme/tools/tools.nix",
    ]


def test_who_locks_is_told_what_plugins_ask_for(built: Built) -> None:
    asked = "acme-tools asks for system jq, npm which@4.0.0, nix acme/tools/tools.nix"
    assert [text for text in built.heard if " asks for " in text] == [asked]


def test_the_manifest_lists_them_and_who_asked(built: Built) -> None:
    manifest = built.manifest
    tools = {tool["package"]: tool for tool in manifest["tools"]}
    assert tools["@ast-grep/cli"]["version"] == "0.51.1"
    assert tools["@ast-grep/cli"]["kind"] == "npm"
    assert tools["isexe"]["licences"]  # which npm decided on
    assert manifest["plugins"] == {
        "acme-tools": {"system": ["jq"], "npm": ["which@4.0.0"], "nix": "acme/tools/tools.nix"}
    }


def test_a_dry_run_says_what_a_plugin_asks_for(built: Built) -> None:
    words = [*AGENTIX, "build", "--dry-run", str(built.root)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    assert "plugin   acme-tools asks for system jq, npm which@4.0.0" in done.stdout
    assert " npm packages\n" in done.stdout
    assert "nix      what default.nix gives\n" in done.stdout


def test_locking_again_changes_nothing(built: Built) -> None:
    before = (built.root / "bundle.lock").read_bytes()
    words = [*AGENTIX, "lock", str(built.root)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert "bundle.lock unchanged" in done.stdout
    assert "npm " not in done.stderr  # what is locked already is not fetched again
    assert (built.root / "bundle.lock").read_bytes() == before


def test_the_native_programs_lead_to_the_toolchain(built: Built) -> None:
    launcher = (built.bundle.store_path / "runtime/bin/ast-grep").read_text()
    program = next(w for w in launcher.split() if w.endswith("/bin/ast-grep"))
    read = "import elf, pathlib, sys; f = elf.read(pathlib.Path(sys.argv[1]).resolve())"
    words = [sys.executable, "-c", f"{read}; print(f.interpreter, f.rpath)", program]
    folder = REPOSITORY / "nix/builders"
    said = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    interpreter, rpath = said.stdout.split()
    assert interpreter.startswith("/nix/store/")
    assert rpath.startswith("/nix/store/")


def asking_for_pkgs(built: Built, folder: Path) -> Path:
    """Return the same project, as far from the plugin, with a default.nix that asks for pkgs."""
    root = built.root.with_name(folder.name)
    shutil.copytree(built.root, root)
    (root / "default.nix").write_text("{ pkgs }: import ./more.nix pkgs\n")
    (root / "more.nix").write_text("pkgs: [ pkgs.hello ]\n")
    return root


def stand_in(folder: Path) -> Path:
    nixpkgs = folder / "nixpkgs"
    nixpkgs.mkdir()
    (nixpkgs / "default.nix").write_text(STAND_IN % {"nix": REPOSITORY / "nix"})
    return nixpkgs


def test_a_file_may_ask_for_a_nixpkgs_that_stands_for_the_pinned_one(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_NIXPKGS", str(stand_in(tmp_path)))
    root = asking_for_pkgs(built, tmp_path)
    bundle = build_bundle(root, offline=True)
    launcher = (bundle.store_path / "runtime/bin/hello").read_text()
    program = next(w for w in launcher.split() if w.endswith("-hello/bin/hello"))
    assert Path(program).is_file()
    with tarfile.open(bundle.path) as archive:  # its closure is in the bundle
        assert any(name.endswith("-hello/bin/hello") for name in archive.getnames())
    told = {"package": "hello", "version": "unknown", "kind": "nix", "licences": []}
    assert told in Built(root, bundle).manifest["tools"]


def test_a_nixpkgs_that_cannot_be_fetched_is_one_line(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = asking_for_pkgs(built, tmp_path)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # nothing is fetched through this
    for offline in (True, False):
        with pytest.raises(FetchError, match=r"pinned nixpkgs.*AGENTIX_NIXPKGS") as caught:
            build_bundle(root, offline=offline)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{ lib }: [ ]", "the project's default.nix asks for lib; it may ask for agentix, pkgs"),
        ("{ }: 7", "the project's default.nix gives a int"),
        ("{ }: ./missing", "missing"),
        ("{ }: {", "default.nix"),
    ],
)
def test_a_nix_file_that_cannot_be_used_is_one_line(
    built: Built, tmp_path: Path, text: str, reason: str
) -> None:
    root = built.root.with_name(tmp_path.name)
    shutil.copytree(built.root, root)
    (root / "default.nix").write_text(text)
    with pytest.raises(NixError) as caught:
        build_bundle(root, offline=True)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


FLAKE = """
{
  inputs.agentix.url = "path:%(agentix)s";
  inputs.nixpkgs.url = "path:%(nixpkgs)s";
  inputs.agentix.inputs.nixpkgs.follows = "nixpkgs";
  outputs = { agentix, ... }: {
    bundle = agentix.lib.mkBundle {
      system = "%(system)s";
      src = ./job;
      elsewhere = {
        acme-tools = ./plug;
        agentix = agentix;
        agentix-runtime = agentix + "/runtime";
      };
    };
  };
}
"""


@pytest.mark.machine_store
def test_a_flake_gives_the_same_by_pure_evaluation(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flakes = ["--extra-experimental-features", "nix-command flakes", "--option"]
    nixpkgs = stand_in(tmp_path)
    clone = tmp_path / "agentix"
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True)
    (nixpkgs / "flake.nix").write_text("{ outputs = { self }: { }; }")
    # Nothing outside of a flake may be looked at.
    shutil.copytree(clone / "nix", nixpkgs / "agentix")
    (nixpkgs / "default.nix").write_text(STAND_IN % {"nix": "./agentix"})
    root = tmp_path / "flake"
    shutil.copytree(built.root.parent, root, ignore=shutil.ignore_patterns("*.tar"))
    (root / "job/default.nix").write_text("{ pkgs }: pkgs.hello\n")
    places: Mapping[str, object] = {"agentix": clone, "nixpkgs": nixpkgs, "system": SYSTEM}
    (root / "flake.nix").write_text(FLAKE % places)
    words = ["nix", *flakes, "build-users-group", ""]
    words += [
        "--option",
        "substitute",
        "false",
        "build",
        f"path:{root}#bundle",
        "--no-write-lock-file",
    ]
    link = tmp_path / "result"
    done = subprocess.run(
        [*words, "--out-link", str(link)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    programs = {path.name for path in (link / "runtime/bin").iterdir()}
    assert {"ast-grep", "hello", "jq", "node", "node-which", "plain", "sg"} <= programs
