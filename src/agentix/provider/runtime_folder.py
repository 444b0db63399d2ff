"""The folder on the host through which one sandbox is reached: its socket, secret and record.

Seen from the host; everything but ``io`` is private to the user::

    <base>/<sandbox id>/    a short path, since that of a socket holds 107 bytes
      record.json           what ``get`` and ``delete`` need, in another process too
      io/                   mounted into the sandbox at /nix/run, whichever user runs there
        token               the secret; the runtime reads it and removes it
        s                   the socket
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentix.bundle.removal import remove
from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.sandbox import SandboxId
from agentix.replacing import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOUNT = "/nix/run"
MAX_SOCKET_PATH = 107
_SHARED = "/tmp"  # noqa: S108 - what is used below it is private
_FORMAT = 1
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_LONGEST_ID = 32


@dataclass(frozen=True, slots=True)
class RuntimeFolder:
    """One sandbox's folder; ``token`` is the secret that every request carries."""

    path: Path
    token: str = field(repr=False)

    @classmethod
    def create(cls, prefix: str) -> RuntimeFolder:
        """Make the folder of a new sandbox, whose id begins with *prefix*, and its secret.

        Raises ProviderError when there is no place for it.
        """
        token = secrets.token_urlsafe(32)
        path = private_folder() / f"{prefix}-{secrets.token_hex(6)}"
        folder = cls(path, token)
        try:
            path.mkdir(mode=0o700)
            try:
                folder.mount.mkdir()
                folder.mount.chmod(0o777)  # the sandbox's user may be any; the parent is private
                _write(folder.mount / "token", token.encode(), 0o644)
            except BaseException:
                folder.remove()
                raise
        except OSError as error:
            raise ProviderError(f"cannot make the folder of a sandbox, {path}: {error}") from error
        return folder

    @classmethod
    def find(cls, sandbox_id: SandboxId, prefix: str = "") -> tuple[RuntimeFolder, dict[str, Any]]:
        """Return the folder of *sandbox_id*, and the facts that were recorded with it.

        Raises SandboxNotFound; ProviderError when its id does not begin with *prefix*: then
        another provider made it.
        """
        if _ID.fullmatch(sandbox_id):
            for base in _bases():
                try:
                    if _refusal(base) is not None:
                        continue
                    content = json.loads((base / sandbox_id / "record.json").read_bytes())
                except (OSError, ValueError):
                    continue
                if content["format"] != _FORMAT:
                    continue
                if prefix and not sandbox_id.startswith(f"{prefix}-"):
                    raise ProviderError(
                        f"sandbox {sandbox_id} was made by another provider; ask that one"
                    )
                return cls(base / sandbox_id, content["token"]), content["facts"]
        raise SandboxNotFound(f"no sandbox {sandbox_id!r} is known to this user on this machine")

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
        return self.mount / "s"

    @property
    def url(self) -> str:
        """The ``runtime_url`` of the sandbox."""
        return f"http+unix://{quote(str(self.socket), safe='')}"

    def record(self, facts: Mapping[str, Any]) -> None:
        """Keep *facts* (plain JSON values) for :meth:`find`, in whichever process."""
        content = {"format": _FORMAT, "token": self.token, "facts": dict(facts)}
        with replacing(self.path / "record.json") as draft:
            _write(draft, json.dumps(content).encode(), 0o600)

    def remove(self) -> None:
        """Remove the folder, the record first; it may be gone already.

        Raises ProviderError when it stays.
        """
        (self.path / "record.json").unlink(missing_ok=True)
        remove(self.path)
        if self.path.exists():
            raise ProviderError(f"cannot remove {self.path}, the folder of a sandbox that ended")


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
