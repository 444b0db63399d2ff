"""Whom to believe that they are a registry: the machine's authorities, and the registry's own."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import DistributionError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where docker and podman look for the authority of one registry.
_FOLDERS = ("/etc/docker/certs.d", "/etc/containers/certs.d", "~/.config/containers/certs.d")


def trusted(host: str) -> ssl.SSLContext:
    """Return what checks the certificate of the registry *host* (with its port).

    Raises DistributionError when an authority that is named for it cannot be read.
    """
    context = ssl.create_default_context()
    # Set from Python 3.13 on: it refuses an authority that does not say what its key is for, as
    # those made by Docker's own instructions do not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    for file in _authorities(host):
        try:
            context.load_verify_locations(file)
        except OSError as error:  # also every SSLError
            why = error.strerror or "it is no certificate"
            raise DistributionError(f"cannot read the authority {file}: {why}") from error
    return context


def _authorities(host: str) -> Iterator[Path]:
    for folder in _FOLDERS:
        with suppress(OSError, RuntimeError):  # none there, or no home
            yield from sorted(Path(folder).expanduser().joinpath(host).glob("*.crt"))
