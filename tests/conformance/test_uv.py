"""The uv provider keeps every promise of a provider that isolates nothing."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentix.provider.uv import UvProvider, UvProviderConfig
from agentix.testing import ProviderConformance, Subject, probes

if TYPE_CHECKING:
    from agentix.testing.case import Inside

pytestmark = [pytest.mark.nix]  # of the bundle


class TestUv(ProviderConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls, bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
        cache = tmp_path_factory.mktemp("uv")
        config = UvProviderConfig(cache=cache, stop_timeout=1)

        def impatient(seconds: float) -> UvProvider:
            return config.model_copy(update={"start_timeout": seconds}).to_provider()

        return Subject(
            provider=config.to_provider,
            image="host",
            bundle=bundle,
            environment={"HOME": pwd.getpwuid(os.getuid()).pw_dir},
            user=(os.getuid(), os.getgid()),
            environment_program=("/usr/bin/env",),
            isolates=frozenset(),
            impatient=impatient,
            socket_folder=None,
            missing_image="debian:12",
            takes_entries=False,
            many=8,
        )

    def test_the_images_own_programs_come_first(self, inside: Inside) -> None:
        *folders, last = inside.call(probes.environment)["PATH"].split(":")
        assert "/usr/bin" in folders
        assert Path(last).with_name("pyvenv.cfg").is_file()
