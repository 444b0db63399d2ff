"""How anything is fetched over HTTP: as the user's machine is set up to."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import aiohttp

from agentix.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=60, sock_connect=20, sock_read=60)


def open_session(
    connections: int,
    *,
    middlewares: Sequence[aiohttp.ClientMiddlewareType] = (),
    authorities: str | None = None,
    proxy: str | None = None,
) -> aiohttp.ClientSession:
    """Return a session that honours the user's proxies, certificates and netrc.

    *authorities* is a file of certificates to trust besides the machine's; FetchError when it
    cannot be read. Each request passes through the *middlewares*, and through the *proxy* if one is
    named here.
    """
    return aiohttp.ClientSession(
        trust_env=True,
        timeout=_TIMEOUT,
        auto_decompress=False,  # the hash is that of the bytes as they are kept
        connector=aiohttp.TCPConnector(limit=connections, ssl=_trusted(authorities)),
        headers={"Accept-Encoding": "identity", "User-Agent": "agentix"},
        middlewares=middlewares,
        proxy=proxy,
    )


def _trusted(authorities: str | None) -> ssl.SSLContext | bool:
    if authorities is None:
        return True
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        raise FetchError(f"cannot read the certificates {authorities}: {error}") from error
    return context
