"""An engine that takes connections and says nothing, as one that is stopped or out of memory."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from agentix.errors import ProviderError
from agentix.provider.docker import engine
from agentix.provider.docker.address import locate


def test_an_engine_that_never_answers_is_named_with_how_long_it_was_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "TIMEOUT", 0.2)
    with tempfile.TemporaryDirectory(prefix="ax") as folder, socket.socket(socket.AF_UNIX) as deaf:
        place = Path(folder, "docker.sock")
        deaf.bind(str(place))
        deaf.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{place}")
        said = f"the Docker engine at unix://{place} did not answer within 0.2 s, asked to agree"
        with pytest.raises(ProviderError, match=said), engine.Engine(locate("docker")):
            pass
