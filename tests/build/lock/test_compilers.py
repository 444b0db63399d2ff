"""What compiles, as a lock keeps it: for every platform, or with libraries for one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentix.build.fetch import needs
from agentix.build.lock import load
from agentix.build.lock.compilers import kept_compilers
from agentix.build.lock.file import Lock, loads
from agentix.build.toolchain import toolchains
from agentix.errors import LockError
from agentix.platforms import PLATFORMS

EXAMPLE = Path(__file__).parents[3] / "examples/hello-world/bundle.lock"
BOTH = list(PLATFORMS)


def compiled(*build: str) -> Lock:
    """Return a lock whose project is compiled, with a compiler of one package for all."""
    lock = load(EXAMPLE)
    deb = {"package": "gcc", "version": "1", "sha256": "0" * 64, "size": 1, "pool": "pool/gcc.deb"}
    names = {builder: f"gcc_1_{platform.debian}.deb" for builder, platform in PLATFORMS.items()}
    data: dict[str, Any] = lock.model_dump(mode="json", exclude_none=True)
    for artifact in data["artifacts"].values():
        del artifact["file"]
    data["artifacts"] |= dict.fromkeys(names.values(), deb)
    data["projects"][0]["compiled"] = True
    data["build"] = build
    data["compilers"] = {
        builder: {target: [names[builder]] for target in BOTH if target == builder or not build}
        for builder in BOTH
    }
    return loads(json.dumps(data))


@pytest.mark.parametrize("build", [(), ("libyaml-dev", "pkgconf")])
def test_it_stays_while_the_same_is_asked_for(build: tuple[str, ...]) -> None:
    lock = compiled(*build)
    assert loads(lock.dumps()) == lock
    assert ('"build"' in lock.dumps()) == bool(build)
    toolchain = toolchains()[lock.toolchain]
    kept = kept_compilers(lock, toolchain, BOTH, build)
    assert kept is not None
    assert {builder: set(found) for builder, found in kept.items()} == {
        builder: {builder} if build else set(BOTH) for builder in BOTH
    }
    assert kept_compilers(lock, toolchain, BOTH, (*build, "zlib1g-dev")) is None
    assert kept_compilers(lock, toolchain, BOTH[:1], build) is None
    others = [other for name, other in toolchains().items() if name != lock.toolchain]
    assert kept_compilers(lock, others[0], BOTH, build) is None


def test_with_libraries_another_platform_is_built_for_on_such_a_machine() -> None:
    amd64, arm64 = BOTH
    assert needs(compiled(), arm64, amd64).artifacts()
    lock = compiled("libyaml-dev")
    assert needs(lock, amd64, amd64).artifacts()
    with pytest.raises(LockError) as refused:
        needs(lock, arm64, amd64)
    assert str(refused.value) == (
        f"{lock.name} is compiled with libyaml-dev, as [tool.agentix] build says, and therefore "
        "for linux/arm64 only on such a machine; build it there"
    )
