"""All tools of a bundle: what its project and its plugins declare, joined and locked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.build.declared import Declared, split_release
from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentix.build.lock.npm import NpmTools
    from agentix.build.lock.system import Packages
    from agentix.platforms import PlatformName

NODE = "nodejs"  # Debian's package of what runs most tools from npm


@dataclass(frozen=True, slots=True)
class Tools:
    """What is locked of them, and which plugin asked for what."""

    plugins: Mapping[str, Declared]
    system: tuple[str, ...]
    packages: Mapping[PlatformName, Packages]
    npm: NpmTools


def join(own: Declared, plugins: Mapping[str, Declared]) -> tuple[list[str], list[str]]:
    """Return the Debian packages and the npm releases that *own* and *plugins* need together.

    Of one npm tool a bundle has one version. Where plugins disagree, the project has to decide,
    else LockError names them.
    """
    # The order of Debian packages matters; the project's own come first.
    wanted = [own, *(declared for _, declared in sorted(plugins.items()))]
    system = dict.fromkeys(name for declared in wanted for name in declared.system)
    decided = {split_release(release)[0]: ("the project", release) for release in own.npm}
    if len(decided) < len(set(own.npm)):
        raise LockError("[tool.agentix] npm has two versions of one tool; leave one of them out")
    asked: dict[str, tuple[str, str]] = {}
    for plugin, declared in sorted(plugins.items()):
        for release in declared.npm:
            name, _ = split_release(release)
            other, before = asked.setdefault(name, (plugin, release))
            if before != release and name not in decided:
                raise LockError(
                    f"the plugins {other} and {plugin} need {before} and {release}, and a bundle "
                    f'has one of them; decide with [tool.agentix] npm = ["{name}@<version>"]'
                )
    releases = {release for _, release in (asked | decided).values()}
    return list(system), sorted(releases)
