"""What an engine says may be what an image or a registry has chosen."""

from __future__ import annotations

from agentix.provider.docker.facts import State
from agentix.provider.docker.problems import RefusedError

EVIL = "one\n two \x1b]0;owned\x07 \x1b[2J" + "x" * 1000


def check(text: str) -> None:
    assert text.isprintable()
    assert "one two" in text
    assert len(text) < 600


def test_a_refusal_is_one_line_without_commands_to_terminals() -> None:
    check(str(RefusedError("docker", "pull image 'x'", EVIL, 0)))


def test_so_is_how_a_container_ended() -> None:
    check(
        State.of(
            {
                "Id": "1",
                "State": {"Status": "exited", "ExitCode": 1, "OOMKilled": False, "Error": EVIL},
                "Config": {"Labels": None},
                "Image": "2",
                "Path": "/nix/runtime/bootstrap.sh",
                "Mounts": [],
            }
        ).end
    )
