"""Functions that use a bundle's system tools for what they are for, wherever they are called."""

import contextlib
import os
import pty
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

LIMIT = 60  # seconds for any program
HELLO = """
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

int main(int count, char **words)
{
    printf("%s %.0f %s\\n", words[1], sqrt(count * 8.0), zlibVersion()[0] ? "zlib" : "");
    return 0;
}
"""
MAKEFILE = """
all: hello static
\t./hello made
\t./static made
\t@test $$((1 + 1)) = 2 && echo shell

hello: hello.o
\tgcc -o $@ $^ -lm -lz

static: hello.o
\tgcc -static -o $@ $^ -lm -lz

hello.o: hello.c
\tcc -O2 -Wall -Werror -c $<
"""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Give a folder that can be written to, in whatever image."""
    for parent in ("/tmp", "/dev/shm"):
        with contextlib.suppress(OSError):
            made = Path(tempfile.mkdtemp(dir=parent))
            break
    else:
        raise OSError("there is no folder to write to")
    try:
        yield made
    finally:
        shutil.rmtree(made)


def run(
    *command: str,
    at: Path | None = None,
    code: int = 0,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Run a program found on PATH; return what it printed, its errors included."""
    done = subprocess.run(
        command,
        cwd=at,
        env={**os.environ, "HOME": str(at or "/"), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT,
    )
    output = done.stdout.decode(errors="replace")
    assert done.returncode == code, (command, done.returncode, output)
    return output


def places() -> dict[str, str]:
    """Return where the tools' programs are found, by name."""
    names = "git curl rg jq node tmux ssh make gcc ld ack yamllint"
    return {name: shutil.which(name) or "" for name in names.split()}


def use_git() -> dict[str, str]:
    """Make a repository, commit, merge by a command that is a script, and clone."""
    own = ["-c", "user.name=Task", "-c", "user.email=task@example.org"]
    with folder() as top:
        run("git", *own, "init", "-b", "main", "first", at=top)
        first = top / "first"
        for branch in ("main", "one", "two"):
            if branch != "main":
                run("git", "switch", "-q", "-c", branch, "main", at=first)
            (first / branch).write_text(f"{branch}\n")
            run("git", "add", branch, at=first)
            run("git", *own, "commit", "-q", "-m", f"Add {branch}", at=first)
        run("git", "switch", "-q", "main", at=first)
        run("git", *own, "merge", "-q", "-m", "Merge all", "one", "two", at=first)
        # Between repositories git starts a shell, if only to take a command line apart.
        source = f"file://{first}"
        if not Path("/bin/sh").exists():
            run("git", "bundle", "create", "-q", "../first.bundle", "--all", at=first)
            source = str(top / "first.bundle")
        run("git", "clone", "-b", "main", source, "second", at=top)
        second = top / "second"
        return {
            "templates": " ".join(sorted(p.name for p in (first / ".git/hooks").iterdir())),
            "log": run("git", "log", "--format=%an: %s", at=second),
            "files": " ".join(sorted(p.name for p in second.iterdir() if p.name != ".git")),
            "exec-path": run("git", "--exec-path").strip(),
            "version": run("git", "--version"),
        }


class Server(BaseHTTPRequestHandler):
    """Answers everything with a few words."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"served\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is named there
        """Be quiet."""


@contextlib.contextmanager
def serving(certificate: str, key: str) -> Iterator[tuple[str, Path]]:
    """Serve on loopback, by TLS; give the address and the authority's file."""
    with folder() as top, ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        (top / "cert.pem").write_text(certificate)
        (top / "both.pem").write_text(certificate + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(top / "both.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}/", top / "cert.pem"
        finally:
            server.shutdown()
            thread.join()


def use_curl(certificate: str, key: str) -> dict[str, str]:
    """Fetch by TLS: unknown authorities are refused, and believed when a variable names them."""
    with serving(certificate, key) as (address, authority):
        ask = ("curl", "-sS", "--noproxy", "*", address)
        git = ("git", "ls-remote", address)
        # As the bundle's own folder is: one file with all of them.
        many = authority.parent / "many"
        many.mkdir()
        own = Path("/nix/runtime/cert.pem").read_text()
        (many / "ca-certificates.crt").write_text(own + certificate)
        return {
            "refused": run(*ask, "-v", code=60),
            "SSL_CERT_FILE": run(*ask, variables={"SSL_CERT_FILE": str(authority)}),
            "CURL_CA_BUNDLE": run(*ask, variables={"CURL_CA_BUNDLE": str(authority)}),
            "git refused": run(*git, code=128, variables=DIRECT),
            "git folder": run(*git, code=128, variables={**DIRECT, "GIT_SSL_CAPATH": str(many)}),
            "git": run(*git, code=128, variables={**DIRECT, "GIT_SSL_CAINFO": str(authority)}),
        }


DIRECT = {"no_proxy": "*", "NO_PROXY": "*", "LC_ALL": "C"}


def use_ripgrep() -> str:
    """Search a folder."""
    with folder() as top:
        (top / "a.txt").write_text("one\ntwo é\n")
        (top / "b.txt").write_text("three\n")
        return run("rg", "--no-heading", "-n", r"tw\w (?=é)|tw\w \p{L}", "-P", at=top)


def use_jq() -> str:
    """Compute with JSON."""
    return run("jq", "-n", "-c", '{a: (1 + 1), b: "x" | test("X"; "i")}')


def use_node() -> list[str]:
    """Run JavaScript that needs modules and data beside the program."""
    program = """
        fetch("data:,fetched").then(r => r.text()).then(text => console.log(text));
        console.log(new Intl.NumberFormat("de").format(1234.5));
    """
    return sorted(run("node", "-e", program).splitlines())


def use_tmux() -> dict[str, str]:
    """Start a session, look at its screen, and attach a terminal to it."""
    with folder() as top:
        tmux = ("tmux", "-f", os.devnull, "-S", str(top / "socket"))
        program = "console.log('drawn é ┃'); setTimeout(() => {}, 60000)"
        run(*tmux, "new-session", "-d", "-x", "80", "-y", "24", "node", "-e", program)
        try:
            screen = _eventually(lambda: run(*tmux, "capture-pane", "-p"), "drawn")
            environment = run(*tmux, "show-environment", "-g")
            return {"screen": screen, "attached": _attach(tmux), "environment": environment}
        finally:
            run(*tmux, "kill-server")


def _eventually(look: Callable[[], str], wanted: str) -> str:
    end = time.monotonic() + LIMIT
    while wanted not in (seen := look()):
        assert time.monotonic() < end, seen
        time.sleep(0.02)
    return seen


def _attach(tmux: tuple[str, ...]) -> str:
    """Return what tmux draws on a terminal, which it does by the terminal's description."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp(tmux[0], [*tmux, "-u", "attach"])
    seen = b""
    try:
        while b"drawn" not in seen:
            seen += os.read(terminal, 4096)
    except OSError:
        pass  # it has ended
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return seen.decode(errors="replace")


def use_ssh() -> dict[str, str]:
    """Ask for the version, make a key, and see what scp starts."""
    with folder() as top:
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "task", "-f", str(top / "key"))
        proxy = ["-o", "ProxyCommand=none", "-o", "ConnectTimeout=1", "-P", "9"]
        return {
            "version": run("ssh", "-V"),
            "key": (top / "key.pub").read_text(),
            "scp": run("scp", "-v", *proxy, "127.0.0.1:x", str(top), code=255),
        }


def use_make_and_gcc() -> dict[str, str]:
    """Build a program with a Makefile, and run it."""
    with folder() as top:
        (top / "hello.c").write_text(HELLO)
        (top / "Makefile").write_text(MAKEFILE)
        made = run("make", "-s", at=top)
        # It is a program like any other: what the image has loaded into all is loaded into it.
        return {
            "made": made,
            "hello": run(str(top / "hello"), "run", at=top, variables={"LD_PRELOAD": ""}),
        }


def use_scripts() -> dict[str, str]:
    """Run a program that is a Perl script and one that is a Python script."""
    with folder() as top:
        (top / "a.pl").write_text("use strict;\nsub found { 1 }\n")
        (top / "a.yaml").write_text("a: 1\na: 2\n")
        return {
            "ack": run("ack", "--nocolor", "--perl", "found", at=top),
            "yamllint": run("yamllint", "-f", "parsable", "a.yaml", at=top, code=1),
        }


def environment_below_make() -> list[str]:
    """Return which variables differ for a program that make starts; the image has an ``env``."""
    with folder() as top:
        (top / "Makefile").write_text("all:\n\t@env\n")  # started as it is, without a shell
        command = ["make", "-s"]
        done = subprocess.run(command, cwd=top, check=True, capture_output=True, timeout=LIMIT)
    seen = {line.partition("=")[0]: line for line in done.stdout.decode().splitlines()}
    known = {name: f"{name}={value}" for name, value in os.environ.items()}
    return sorted(name for name in seen.keys() | known.keys() if seen.get(name) != known.get(name))
