"""Start the runtime: ``python -I -m agentix_runtime --socket PATH --token-file PATH``.

The order matters to how soon it answers: listen first, so that callers can queue; then start the
worker, which loads while this process loads its HTTP server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentix.wire.protocol import LEASE_ENDED
from agentix_runtime.server.endpoint import EndpointError, listen_tcp, listen_unix, take_secret
from agentix_runtime.server.process import Limits, adopt_orphans, spawn_worker

if TYPE_CHECKING:
    from agentix_runtime.server.endpoint import Endpoint
    from agentix_runtime.server.process import Spawned

_LONGEST_LEASE = 2**31


def main() -> int:
    """Run the runtime until it is told to end."""
    parser = argparse.ArgumentParser("agentix_runtime", description="The runtime of a sandbox.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket", type=Path, metavar="PATH", help="listen on a Unix socket")
    where.add_argument("--tcp", metavar="HOST:PORT", help="listen on TCP")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="PATH",
        required=True,
        help="the secret, removed once it is read; - is the first line of standard input",
    )
    parser.add_argument(
        "--name", default="", help="what the sandbox is called, for its log file (the host's name)"
    )
    parser.add_argument(
        "--logs", metavar="FOLDER", help="where that file goes, unless AGENTIX_LOG_DIR says so"
    )
    parser.add_argument(
        "--unset",
        metavar="NAME",
        action="append",
        default=[],
        help="a variable that is the sandbox maker's, not the image's",
    )
    parser.add_argument(
        "--end-with-stdin", action="store_true", help="end when standard input does: nobody is left"
    )
    parser.add_argument(
        "--lease", type=seconds, metavar="SECONDS", help="end when nobody holds this for that long"
    )
    options = parser.parse_args()
    for name in options.unset:
        os.environ.pop(name, None)
    # A signal that the host program blocks would never arrive here, nor in what is started here.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # The first process of a container ignores signals that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    try:
        secret = take_secret(options.token_file)
        endpoint = listen_unix(options.socket) if options.socket else listen_tcp(options.tcp)
    except EndpointError as exc:
        return _complain(str(exc))
    with contextlib.closing(endpoint):
        owner = os.dup(0) if options.end_with_stdin else None  # which children do not inherit
        _standard_input_from_nothing()
        if os.getpid() != 1:
            adopt_orphans()
        limits = Limits.raised()
        try:
            worker = spawn_worker(limits)
        except OSError as exc:
            return _complain(f"cannot start the worker: {exc.strerror}")
        name = options.name or socket.gethostname()
        settings = {"name": name, "logs": options.logs, "lease": options.lease}
        status = _serve(endpoint, secret, limits, worker, owner, **settings)
    if status == LEASE_ENDED:
        _complain(f"nobody has held this sandbox for {options.lease:g} s, so it has ended")
    return status


def seconds(text: str) -> float:
    """Read a length of time, or raise ValueError."""
    number = float(text)
    if not 0 < number < _LONGEST_LEASE:
        raise ValueError
    return number


def _complain(what: str) -> int:
    print(f"agentix_runtime: {what}", file=sys.stderr)  # noqa: T201 - it has no other output
    return 1


def _standard_input_from_nothing() -> None:
    """Make standard input an empty one, here and for all that is started from here."""
    try:
        nothing = os.open("/dev/null", os.O_RDONLY)
    except OSError:  # an image without /dev
        nothing, writer = os.pipe()
        os.close(writer)
    os.dup2(nothing, 0)
    if nothing != 0:
        os.close(nothing)


def _serve(
    endpoint: Endpoint,
    secret: str,
    limits: Limits,
    worker: Spawned,
    owner: int | None,
    **settings: Any,
) -> int:
    # This side speaks plain HTTP on a private socket, and asyncio would load TLS for nothing.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    import asyncio

    from agentix_runtime.server.life import serve

    return asyncio.run(serve(endpoint, secret, limits, worker, owner, **settings))


if __name__ == "__main__":
    sys.exit(main())
