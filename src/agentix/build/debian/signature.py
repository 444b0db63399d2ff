"""Checking what Debian signed, with whichever verifier the machine has."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from agentix.build.command import Command
from agentix.errors import LockError

_TIMEOUT = 60.0
_BEGIN = "-----BEGIN PGP SIGNED MESSAGE-----"
_SIGNATURE = "-----BEGIN PGP SIGNATURE-----"
_END = "-----END PGP SIGNATURE-----"


async def verify(signed: bytes, keyring: Path, where: str) -> str:
    """Return the text of a cleartext-signed message, once a key in *keyring* vouches for it.

    Only the signed part is returned, whatever surrounds it. *where* names the origin in errors.
    Raises LockError when the signature is not good, or when there is nothing to check it with.
    """
    if not await asyncio.to_thread(keyring.is_file):
        raise LockError(
            f"cannot verify {where}: {keyring} is missing; install debian-archive-keyring"
        )
    text, signature = _split(signed, where)
    with tempfile.TemporaryDirectory() as folder:
        data, armoured = Path(folder, "data"), Path(folder, "signature.asc")
        await asyncio.to_thread(data.write_text, text, encoding="utf-8", newline="")
        await asyncio.to_thread(armoured.write_text, signature, encoding="ascii")
        if gpgv := shutil.which("gpgv"):
            command = [gpgv, "--status-fd", "1", "--keyring", str(keyring)]
        elif sqv := shutil.which("sqv"):
            command = [sqv, "--keyring", str(keyring)]
        else:
            raise LockError(f"cannot verify {where}: install gpgv (or sqv)")
        command += [str(armoured), str(data)]
        ended = await Command(command, raises=LockError, timeout=_TIMEOUT).run_aside()
    # gpgv also fails when one of several signers is unknown to it: one good signature will do.
    said = _statuses(ended.output.decode(errors="replace"))
    if ended.status != 0 and not ("GOODSIG" in said and "BADSIG" not in said):
        raise LockError(
            f"{where} is not signed by Debian ({ended.reason}); check the mirror and {keyring}"
        )
    return text


def signed_text(signed: bytes, where: str) -> str:
    """Return the text of a message that was verified before; LockError if it is none."""
    return _split(signed, where)[0]


def _statuses(output: str) -> set[str]:
    """Return the keywords of gpgv's status lines: what follows one is the signer's to choose."""
    lines = (line.split(" ") for line in output.split("\n"))
    return {words[1] for words in lines if words[0] == "[GNUPG:]" and words[1:]}


def _split(signed: bytes, where: str) -> tuple[str, str]:
    """Return the text and the signature of a cleartext-signed message (RFC 9580, section 7)."""
    try:
        lines = signed.decode("utf-8").split("\n")
        start = lines.index("", lines.index(_BEGIN)) + 1
        middle = lines.index(_SIGNATURE, start)
        end = lines.index(_END, middle)
    except ValueError:
        raise LockError(f"{where} is not a signed message; check the mirror") from None
    text = "\n".join(line.removeprefix("- ").rstrip(" \t\r") for line in lines[start:middle])
    return text, "\n".join(lines[middle : end + 1]) + "\n"
