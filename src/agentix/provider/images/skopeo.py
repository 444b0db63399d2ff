"""The only module that runs skopeo, which speaks with registries: the user's logins are its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from agentix.errors import ImageError
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentix.provider.stopping import Stop

_LOOK_EVERY = 0.05
_STALLED = 300.0  # seconds without a byte, after which a transfer is given up
_LONGEST = 16 * 1024 * 1024  # bytes that it may answer with
_GRACE = 10.0
# What registries and networks answer when they mean "not now".
_PASSING = re.compile(
    r"too ?many ?requests|\b(429|500|502|503|504)\b|connection reset|timeout|unexpected EOF",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"no such host|connection refused|network is unreachable|no route to host|server misbehaving"
    r"|temporary failure in name resolution",
    re.IGNORECASE,
)
_DENIED = re.compile(r"unauthorized|authentication required|denied|\b(401|403)\b", re.IGNORECASE)
_MESSAGE = re.compile(r'level=fatal msg="((?:[^"\\]|\\.)*)"')
_CONTEXT = re.compile(r'^(Error parsing image name "[^"]*"|initializing source \S+): ')


class RegistryError(ImageError):
    """A registry does not give an image.

    ``passing``: it may do so in a moment; ``unreachable``: it was not heard at all, or that.
    """

    def __init__(self, message: str, *, passing: bool = False, unreachable: bool = False) -> None:
        self.passing = passing
        self.unreachable = unreachable or passing
        super().__init__(message)


class Skopeo:
    """Runs skopeo until it ends, or *stop* says so."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def manifest(self, location: str, *, insecure: bool, within: float) -> bytes:
        """Return what the registry has at *location*, byte for byte: a manifest or an index.

        Raises RegistryError, also when it takes longer than *within* seconds.
        """
        options = ["--tls-verify=false"] if insecure else []
        words = ["inspect", "--raw", *options, location]
        deadline = time.monotonic() + within

        def watch() -> None:
            if time.monotonic() > deadline:
                raise RegistryError(f"no answer within {within:g} s", passing=True)

        return self._run(["--command-timeout", f"{within + _GRACE:g}s"], words, watch)

    def copy(
        self, location: str, folder: Path, *, insecure: bool, advance: Callable[[int], None]
    ) -> None:
        """Fetch the image at *location* into *folder*: its files by their digests, unpacked.

        *advance* hears how many bytes have arrived. Raises RegistryError, also when nothing has
        moved for long.
        """
        options = ["--src-tls-verify=false"] if insecure else []
        words = ["copy", "--quiet", "--remove-signatures", "--dest-decompress", *options]
        had, moved = 0, time.monotonic()

        def watch() -> None:
            nonlocal had, moved
            now = _size(folder)
            if now > had:
                advance(now - had)
                had, moved = now, time.monotonic()
            elif time.monotonic() - moved > _STALLED:
                raise RegistryError(f"nothing arrived for {_STALLED:g} s", passing=True)

        self._run([], [*words, location, f"dir:{folder}"], watch)
        watch()

    def _run(
        self, options: Sequence[str], words: Sequence[str], watch: Callable[[], None]
    ) -> bytes:
        command = [*_dies_with_us(), _program(), *_policy(), *options, *words]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaint:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=complaint,
                    start_new_session=True,  # Ctrl-C is for the host program
                )
            except OSError as error:
                raise RegistryError(f"skopeo cannot be started: {error}") from error
            try:
                while process.poll() is None:
                    self._stop.sleep(_LOOK_EVERY)
                    watch()
            finally:
                _end(process)
            if process.returncode != 0:
                raise _explained(_tail(complaint), process.returncode)
            output.seek(0)
            return output.read(_LONGEST)


def _program() -> str:
    found = shutil.which("skopeo", path=f"{os.environ.get('PATH', os.defpath)}:/usr/bin:/bin")
    if found is None:
        raise RegistryError(
            "that takes skopeo, which is not installed; install it (Debian: apt-get install"
            " skopeo), or save the image into a file where there is one",
            unreachable=True,
        )
    return found


def _dies_with_us() -> list[str]:
    """Return the words before a command that end it when this process is killed outright."""
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _policy() -> list[str]:
    """Return what makes it work where nobody has said which images to trust."""
    places = ("~/.config/containers/policy.json", "/etc/containers/policy.json")
    known = any(Path(place).expanduser().exists() for place in places)
    return [] if known else ["--insecure-policy"]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _size(folder: Path) -> int:
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:  # they are renamed meanwhile
        for entry in entries:
            with suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _tail(file: IO[bytes]) -> str:
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 8192))
    return file.read().decode(errors="replace")


def _explained(complaint: str, code: int) -> RegistryError:
    said = _MESSAGE.findall(complaint)
    lines = [line for line in complaint.splitlines() if line.strip()]
    text = said[-1].replace('\\"', '"') if said else (lines or [f"exit status {code}"])[-1]
    reason = plain(_CONTEXT.sub("", text), 400)
    if _PASSING.search(reason):
        return RegistryError(reason, passing=True)
    if _UNREACHABLE.search(reason):
        return RegistryError(f"{reason}; check the name and the network", unreachable=True)
    hint = "check the name"
    if "HTTP response to HTTPS client" in reason or "x509" in reason:
        hint = (
            "if it may be spoken to without TLS, name it in insecure_registries, or in the user's"
            " containers/registries.conf"
        )
    elif _DENIED.search(reason):
        hint = "log in to the registry with skopeo login, or check the name"
    return RegistryError(f"{reason}; {hint}")
