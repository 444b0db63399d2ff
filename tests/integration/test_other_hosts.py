"""What an arm64 machine builds is what this one builds, as far as an emulator can tell."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from emulation import NoEmulatorError, run_emulated

from agentix import nix, platforms
from agentix.build import toolchain as pins
from agentix.build.fetch import fetch, needs
from agentix.build.lock import load
from agentix.build.plan import make_plan
from agentix.build.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.platforms import PlatformName

pytestmark = [pytest.mark.nix, pytest.mark.machine_store, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]
PROJECT = REPOSITORY / "examples/hello-world"
HOST: PlatformName = "linux/arm64"
SYSTEM = platforms.ARM64.nix
DERIVATION = re.compile(
    r'Derive\(\[\("out","(?P<out>[^"]+)","[^"]*","(?P<hash>[^"]*)"\)\],.*?\],\[[^]]*\],'
    r'"(?P<system>[^"]+)","(?P<builder>[^"]+)"',
    re.DOTALL,
)


@pytest.fixture(scope="module", params=["linux/amd64", "linux/arm64"])
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan of a bundle for each platform, with all that an arm64 machine builds it from."""
    if platforms.current().name == HOST:
        pytest.skip("to this machine, arm64 is nothing foreign")
    lock = load(PROJECT / "bundle.lock")
    asked = Request.of(PROJECT, platform=request.param)
    fetch(needs(lock, asked.platform, HOST), project=PROJECT, python=lock.python)
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    file.write_text(make_plan(lock, asked).dumps())
    return file


def command(program: str, plan: Path, *options: str) -> list[str]:
    found = nix.find()
    words = [str(found.programs / program), *found.options(), str(REPOSITORY / "nix/build.nix")]
    return [*words, "--argstr", "plan", str(plan), *options]


def output(words: list[str]) -> list[str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_arm64_machine_builds_all_by_itself_from_what_was_fetched(plan: Path) -> None:
    [root] = output(command("nix-instantiate", plan, "--argstr", "system", SYSTEM))
    derivations = output(["nix-store", "--query", "--requisites", root])
    starts, systems = [], Counter[str]()
    for path in derivations:
        if not path.endswith(".drv"):
            continue
        found = DERIVATION.match(Path(path).read_text())
        assert found is not None, path
        systems[found["system"]] += 1
        if found["hash"]:
            starts.append(Path(found["out"]))
    assert set(systems) == {SYSTEM}
    assert starts
    assert nix.invalid(starts) == []


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Return the mode and a hash of everything below *root*."""
    found = {}
    for path in sorted(root.rglob("*")):
        content = os.fsencode(path.readlink()) if path.is_symlink() else b""
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
        name = str(path.relative_to(root))
        found[name] = (path.lstat().st_mode, hashlib.sha256(content).hexdigest())
    return found


def test_arm64_programs_install_a_native_wheel_as_ours_do(tmp_path: Path) -> None:
    lock = load(PROJECT / "bundle.lock")
    name = next(n for n in lock.platforms["linux/amd64"].wheels if n.startswith("msgpack-"))
    python = {}
    for machine in platforms.PLATFORMS:
        fetch(needs(lock, "linux/amd64", machine), project=PROJECT, python=lock.python)
        arguments = {"name": lock.toolchain, "platform": machine}
        python[machine] = nix.build(REPOSITORY / "tests/nix/toolchain.nix", arguments)
    trees = []
    for machine in platforms.PLATFORMS:
        seed = pins.seeds().programs[machine]["patchelf"]
        installer = next(w for w in pins.seeds().wheels if w.package == "installer")
        work = tmp_path / machine.replace("/", "-")
        work.mkdir()
        config = {
            "file": name,
            "wheel": str(lock.artifacts[name].store_path),
            "installer": str(installer.store_path),
            "patchelf": str(seed.store_path),
            "loader": "ld-linux-x86-64.so.2",
            "python": lock.python,
            "toolchain": "/nix/store/one-for-both",
        }
        (work / "config.json").write_text(json.dumps(config))
        environment = {
            "configPath": str(work / "config.json"),
            "out": str(tmp_path / "out"),
            "PATH": f"{python[machine]}/bin",
            "PYTHONHASHSEED": "0",
            "PYTHONUTF8": "1",
        }
        set_ = [f"{key}={value}" for key, value in environment.items()]
        script = str(REPOSITORY / "nix/builders/wheel.py")
        words = ["/usr/bin/env", "-i", *set_, "python3", "-s", "-S", "-B", script]
        if machine == platforms.current().name:
            output(words)
        else:
            try:
                run_emulated(*words)
            except NoEmulatorError as error:
                pytest.skip(f"{error}")
        (tmp_path / "out").rename(work / "out")
        trees.append(tree(work / "out"))
    assert any(name.endswith(".so") for name in trees[0])
    assert any(name.endswith(".pyc") for name in trees[0])
    assert trees[0] == trees[1]


@pytest.mark.timeout(7200)
@pytest.mark.skipif("AGENTIX_EMULATED" not in os.environ, reason="minutes: `make emulated`")
def test_an_arm64_machines_bundle_differs_from_ours_in_the_names_of_store_paths_only(
    plan: Path,
) -> None:
    if os.geteuid() != 0 or nix.find().daemon:
        pytest.skip("needs a store that is written directly, by root")
    [ours] = output(command("nix-build", plan, "--no-out-link"))
    options = ("--argstr", "system", SYSTEM, "--option", "extra-platforms", SYSTEM, "--no-out-link")
    try:
        said = run_emulated(*command("nix-build", plan, *options))
    except NoEmulatorError as error:
        pytest.skip(f"{error}")
    [theirs] = said.split()
    assert theirs != ours
    assert dict(nameless(theirs)) == dict(nameless(ours))


def nameless(root: str) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield what is in the closure of *root*, with the hashes of all names in it left out."""
    closure = output(["nix-store", "--query", "--requisites", root])
    names = [Path(path).name for path in closure]
    hashes = re.compile("|".join(name.partition("-")[0] for name in names).encode())
    seen = Counter[str]()
    for name in sorted(names, key=lambda name: name.partition("-")[2]):
        plain = name.partition("-")[2]
        seen[plain] += 1
        for path in sorted(Path(nix.find().real(name)).rglob("*")):
            if path.is_symlink():
                content = os.fsencode(path.readlink())
            else:
                content = path.read_bytes() if path.is_file() else b""
            digest = hashlib.sha256(hashes.sub(b"", content)).hexdigest()
            where = path.relative_to(nix.find().real(name))
            yield f"{plain} {seen[plain]} {where}", (path.lstat().st_mode, digest)
