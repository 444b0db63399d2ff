"""The folder on the host through which one sandbox is reached: its socket, secret and record.

Seen from the host; everything but ``io`` is private to the user::

    <base>/<sandbox id>/    a short path, since that of a socket holds 107 bytes
      record.json           whose it is, and what ``get`` and ``delete`` need, in any process
      io/                   mounted into the sandbox at /nix/run, whichever user runs there
        token               the secret; the runtime reads it and removes it
        s                   the socket

A provider keeps whatever else one sandbox needs on the host in that folder, too: then it goes with
it, also when the process that made it was killed and somebody else tidies up.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AwareDatetime, Field, ValidationError

from agentix.bundle.removal import remove
from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.holding import keep_bundle, release_bundle
from agentix.provider.owner import Owner
from agentix.provider.sandbox import SandboxId
from agentix.replacing import replacing
from agentix.text import quoted
from agentix.validation import Strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentix.bundle import CachedBundle

MOUNT = "/nix/run"
MAX_SOCKET_PATH = 107
_SHARED = "/tmp"  # noqa: S108 - what is used below it is private
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_LONGEST_ID = 32
_LEAVING = ".leaving-"
_MOST_BYTES = 1 << 20
FORGOTTEN = 60.0  # seconds after which nobody is still at work on what is half made or removed


class Record(Strict):
    """What is known of a sandbox in every process of its user.

    ``image`` is what its user called it. ``facts`` are the provider's own, plain JSON values; None
    while it is being made.
    """

    format: Literal[2] = 2
    token: Annotated[str, Field(repr=False)]
    image: str
    created: AwareDatetime
    owner: Owner
    facts: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RuntimeFolder:
    """One sandbox's folder; ``token`` is the secret that every request carries.

    Where the runtime cannot listen in it, processes listen for it, each at a socket of its own name
    (``dataclasses.replace(folder, socket_name=…)``, of nine characters at most).
    """

    path: Path
    token: str = field(repr=False)
    socket_name: str = "s"

    @classmethod
    def create(
        cls, provider: str, image: str = "", bundle: CachedBundle | None = None
    ) -> RuntimeFolder:
        """Make the folder of a new sandbox of *image*, its secret, and the record of its owner.

        Its id begins with the name of the *provider*. This process holds *bundle* until the folder
        is removed, so that no ``agentix cache gc`` takes it from the sandbox. Raises ProviderError
        when there is no place for it.
        """
        token = secrets.token_urlsafe(32)
        path = private_folder() / f"{provider}-{secrets.token_hex(6)}"
        folder = cls(path, token)
        try:
            path.mkdir(mode=0o700)
            try:
                folder._write_record(
                    Record(
                        token=token,
                        image=image,
                        created=datetime.now(UTC).replace(microsecond=0),
                        owner=Owner.current(),
                    )
                )
                folder.mount.mkdir()
                folder.mount.chmod(0o777)  # the sandbox's user may be any; the parent is private
                _write(folder.mount / "token", token.encode(), 0o644)
            except BaseException:
                folder.remove()
                raise
        except OSError as error:
            raise ProviderError(f"cannot make the folder of a sandbox, {path}: {error}") from error
        if bundle is not None:
            keep_bundle(path, bundle)
        return folder

    @classmethod
    def find(
        cls, sandbox_id: SandboxId, provider: str = ""
    ) -> tuple[RuntimeFolder, dict[str, Any]]:
        """Return the folder of *sandbox_id*, and the facts that were recorded with it.

        Raises SandboxNotFound; ProviderError when it is the sandbox of another than *provider*.
        """
        if _ID.fullmatch(sandbox_id):
            for base in _trusted_bases():
                folder = cls(base / sandbox_id, "")
                record = folder.read_record()
                if record is None or record.facts is None:
                    continue
                if provider and folder.provider != provider:
                    raise ProviderError(
                        f"sandbox {sandbox_id} was made by another provider; ask that one"
                    )
                return cls(folder.path, record.token), record.facts
        raise SandboxNotFound(
            f"no sandbox {quoted(sandbox_id)} is known to this user on this machine"
        )

    @classmethod
    def all(cls, provider: str) -> list[RuntimeFolder]:
        """Return every folder of this user's sandboxes of *provider*, also half-made ones."""
        found = []
        for base in _trusted_bases():
            with suppress(OSError), os.scandir(base) as entries:
                for entry in entries:
                    folder = cls(base / entry.name, "")
                    if (
                        _ID.fullmatch(entry.name)
                        and folder.provider == provider
                        and entry.is_dir(follow_symlinks=False)
                    ):
                        found.append(folder)
        return found

    @property
    def provider(self) -> str:
        """The name of the provider that made it, as its id says."""
        return self.path.name.rpartition("-")[0]

    @property
    def sandbox_id(self) -> SandboxId:
        """The id of the sandbox: the folder's name."""
        return SandboxId(self.path.name)

    @property
    def command(self) -> tuple[str, ...]:
        """What to run inside the sandbox: the program, and its arguments."""
        return (
            "/nix/runtime/bootstrap.sh",
            *("--socket", f"{MOUNT}/s"),
            *("--token-file", f"{MOUNT}/token"),
            *("--name", self.sandbox_id),
        )

    @property
    def mount(self) -> Path:
        """What the sandbox sees at ``/nix/run``."""
        return self.path / "io"

    @property
    def socket(self) -> Path:
        """Where the runtime listens, as seen from the host."""
        return self.mount / self.socket_name

    @property
    def url(self) -> str:
        """The ``runtime_url`` of the sandbox."""
        return f"http+unix://{quote(str(self.socket), safe='')}"

    def record(self, facts: Mapping[str, Any]) -> None:
        """Keep *facts* (plain JSON values) for :meth:`find`, in whichever process.

        Until then the sandbox is half-made: nobody finds it, and it is a leftover as soon as its
        owner is gone. Raises ProviderError when its folder was taken away meanwhile.
        """
        record = self.read_record()
        if record is None:
            raise ProviderError(f"the folder of sandbox {self.sandbox_id} was taken away")
        self._write_record(record.model_copy(update={"facts": dict(facts)}))

    def read_record(self) -> Record | None:
        """Return its record; None when there is none, or none that makes sense."""
        try:
            with open(self.path / "record.json", "rb", opener=_open_as_it_is) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None
                return Record.model_validate_json(file.read(_MOST_BYTES))
        except (OSError, ValidationError):
            return None

    def listens(self) -> bool:
        """Tell whether somebody listens on its socket, which a sandbox may have made a link."""
        try:
            place = os.open(self.socket, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if not stat.S_ISSOCK(os.fstat(place).st_mode):
                return False
            with socket.socket(socket.AF_UNIX) as client:
                client.setblocking(False)
                client.connect(f"/proc/self/fd/{place}")
        except BlockingIOError:
            return True  # so many ask that they have to queue
        except OSError:
            return False
        finally:
            os.close(place)
        return True

    def touched(self) -> float:
        """Return when something was last made in it, in seconds since 1970; 0.0 when it is gone."""
        try:
            return self.path.lstat().st_mtime
        except OSError:
            return 0.0

    def remove(self) -> None:
        """Remove the folder; it may be gone already, or be removed by others at the same time.

        Raises ProviderError when it stays.
        """
        release_bundle(self.path)
        leaving = self.path.with_name(f"{_LEAVING}{secrets.token_hex(8)}")
        try:
            self.path.rename(leaving)  # one of all who try
        except FileNotFoundError:
            return
        except OSError as error:
            raise _stays(self.path) from error
        remove(leaving)
        if leaving.exists():
            raise _stays(leaving)

    def _write_record(self, record: Record) -> None:
        with replacing(self.path / "record.json") as draft:
            _write(draft, record.model_dump_json().encode(), 0o600)


def sweep() -> None:
    """Finish what killed processes had begun to remove."""
    for base in _trusted_bases():
        for leaving in base.glob(f"{_LEAVING}*"):
            with suppress(OSError):
                if leaving.lstat().st_ctime < time.time() - FORGOTTEN:
                    remove(leaving)


def _stays(path: Path) -> ProviderError:
    return ProviderError(f"cannot remove {path}, the folder of a sandbox that ended")


def _open_as_it_is(path: str, flags: int) -> int:
    """Open a file without following a link, or waiting for whoever writes into a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask
        file.write(content)


def _bases() -> Iterator[Path]:
    """Yield where this user's folders may be, the best first."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_absolute():
        yield Path(runtime, "agentix")
    for parent in dict.fromkeys((tempfile.gettempdir(), _SHARED)):
        yield Path(parent, f"agentix-{os.getuid()}")


def _trusted_bases() -> Iterator[Path]:
    """Yield those that are there and nobody else's."""
    for base in _bases():
        with suppress(OSError):
            if _refusal(base) is None:
                yield base


def _refusal(base: Path) -> str | None:
    """Say why *base* cannot be trusted with secrets, or None."""
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return f"{base} is not a folder of this user"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return f"{base} is open to other users (chmod 700 closes it)"
    return None


def private_folder() -> Path:
    """Return this user's folder for sockets, made if need be: private, and with a short path.

    Raises ProviderError when there is no place for one.
    """
    reasons: list[str] = []
    for base in _bases():
        if len(os.fsencode(base / ("x" * _LONGEST_ID) / "io" / "s")) > MAX_SOCKET_PATH:
            reasons.append(f"{base} is too long for the path of a socket")
            continue
        try:
            base.mkdir(mode=0o700, exist_ok=True)
            refusal = _refusal(base)
        except OSError as error:
            refusal = str(error)
        if refusal is None:
            return base
        reasons.append(refusal)
    raise ProviderError(
        "no place for the sockets of sandboxes: " + "; ".join(reasons) + "; set XDG_RUNTIME_DIR"
    )
