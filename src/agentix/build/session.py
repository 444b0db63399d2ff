"""How anything is fetched over HTTP: as the user's machine is set up to."""

from __future__ import annotations

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=60, sock_connect=20, sock_read=60)


def open_session(connections: int) -> aiohttp.ClientSession:
    """Return a session that honours the user's proxies, certificates and netrc."""
    return aiohttp.ClientSession(
        trust_env=True,
        timeout=_TIMEOUT,
        auto_decompress=False,  # the hash is that of the bytes as they are kept
        connector=aiohttp.TCPConnector(limit=connections),
        headers={"Accept-Encoding": "identity", "User-Agent": "agentix"},
    )
