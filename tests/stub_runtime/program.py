"""The stub's runtime. ``STUB`` in its environment names one way to misbehave.

``GET /health`` answers as a runtime does; ``GET /run?CODE`` evaluates an expression and returns
its repr, for tests that look around inside a sandbox.
"""

# It starts in a few milliseconds, and printing is one of its jobs.
# ruff: noqa: B905, PTH101, PTH108, PTH123, T201

import os
import signal
import socketserver
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler

HEALTH = (
    '{"status": "ok", "protocol": 3, "agentix": "0.1.0", "python": "3.11.2", "libc": "none",'
    ' "pid": %d, "worker": {"pid": null}}'
)


def main() -> None:
    stub = os.environ.get("STUB", "")
    options = dict(zip(sys.argv[1:], sys.argv[2:]))
    with open(options["--token-file"]) as file:
        token = file.read()
    os.unlink(options["--token-file"])
    if "--end-with-stdin" in sys.argv:
        threading.Thread(target=lambda: os._exit(len(os.read(0, 1))), daemon=True).start()
    if stub == "exit":
        print("first line\nthe reason why it ends", flush=True)
        sys.exit(3)
    if stub == "never":
        time.sleep(3600)
    if stub == "ignore-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if stub == "children":
        for _ in range(3):
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(3600)
    if stub == "talk":
        sys.stdout.write("x" * 79 + "\n")
        for _ in range(10 * 1024 * 1024 // 80):
            sys.stdout.write("y" * 79 + "\n")
        sys.stdout.flush()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers["Authorization"] != f"Bearer {token}":
                return self.answer(401, "no")
            path, _, query = self.path.partition("?")
            if path == "/health":
                return self.answer(200, HEALTH % os.getpid())
            return self.answer(200, repr(eval(urllib.parse.unquote(query))))

        def answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "host"

        def log_message(self, *_: object) -> None:
            pass

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    with Server(options["--socket"], Handler) as server:
        os.chmod(options["--socket"], 0o666)
        server.serve_forever(0.01)


main()
