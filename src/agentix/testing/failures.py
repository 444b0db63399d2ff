"""When there can be no sandbox: one line that says why, soon, and nothing half-made."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.errors import BundleError, ImageError, ProviderError
from agentix.testing import probes
from agentix.testing.case import SOON, refused, scenario
from agentix.testing.group import Group
from agentix.testing.scripted import OBSTINATE

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.testing.case import Case

_WAIT = 1.5


class Failures(Group):
    """Images, bundles and runtimes that are not as they should be."""

    @scenario
    async def test_an_image_that_nobody_has_is_named(self, case: Case) -> None:
        image = case.subject.missing_image
        case.require(image, "missing_image")
        assert image is not None
        said = await refused(case.provider(), case.config(image=image), ImageError)
        assert image in said

    def test_a_bundle_that_is_not_there_is_named(self, case: Case, tmp_path: Path) -> None:
        config = case.config(bundle=tmp_path / "nothing.bundle.tar")
        said = case.run(refused(case.provider(), config, BundleError))
        assert "nothing.bundle.tar" in said

    @scenario
    async def test_a_bundle_for_another_platform_is_refused_naming_both(self, case: Case) -> None:
        ours = platforms.current().name
        other = next(name for name in platforms.PLATFORMS if name != ours)
        config = case.scripted("exit 1", platform=other)
        kinds = (BundleError, ImageError, ProviderError)
        said = await refused(case.provider(), config, *kinds)
        assert other in said
        assert ours in said

    @scenario
    async def test_a_platform_that_the_bundle_is_not_for_is_refused(self, case: Case) -> None:
        ours = platforms.current().name
        other = next(name for name in platforms.PLATFORMS if name != ours)
        kinds = (BundleError, ImageError, ProviderError)
        assert other in await refused(case.provider(), case.config(platform=other), *kinds)

    @scenario
    async def test_a_runtime_that_ends_at_once_is_quoted(self, case: Case) -> None:
        config = case.scripted("echo first; echo 'it is the flux' >&2; exit 1")
        said = await refused(case.provider(), config, ProviderError)
        assert "it is the flux" in said

    @scenario
    async def test_failing_again_and_again_leaves_nothing(self, case: Case) -> None:
        config = case.scripted("exit 1")
        for _ in range(5):
            await refused(case.provider(), config, ProviderError)

    @scenario
    async def test_a_runtime_that_never_answers_is_not_waited_for(self, case: Case) -> None:
        impatient = case.subject.impatient
        case.require(impatient, "impatient")
        assert impatient is not None
        config = case.scripted("echo here I am; exec {shell} sleep 1000")
        begun = time.monotonic()
        said = await refused(impatient(_WAIT), config, ProviderError)
        assert time.monotonic() - begun >= _WAIT
        assert f"{_WAIT:g} s" in said

    @scenario
    async def test_a_runtime_that_ignores_signals_is_ended_all_the_same(self, case: Case) -> None:
        provider = case.provider()
        sandbox = await provider.create(case.scripted(OBSTINATE))
        assert await sandbox.remote(probes.echo, 1) == 1
        await sandbox.aclose()
        begun = time.monotonic()
        await provider.delete(sandbox.sandbox_id)
        assert time.monotonic() - begun < SOON
