"""What is said of an ssh that leads to no engine."""

from __future__ import annotations

from agentix.provider.docker.dialing import why_it_ended
from agentix.provider.docker.shell import ShellSocket

SAYS = "ssh: Could not resolve hostname nowhere: Name or service not known"


def test_the_reason_can_be_asked_for_after_the_connection_was_closed() -> None:
    stream = ShellSocket.start(["/bin/sh", "-c", f"echo '{SAYS}' >&2"], "nowhere")
    assert stream.recv(1) == b""
    stream.close()
    stream.close()
    assert why_it_ended(stream) == SAYS
