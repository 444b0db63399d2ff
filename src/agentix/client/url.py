"""Where a runtime is reached: over a Unix socket or over TCP."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class RuntimeURL:
    """A parsed runtime URL: ``http+unix://<percent-encoded path>`` or ``http://host:port``."""

    text: str
    base: str
    """What HTTP requests are addressed to."""
    socket: str | None
    """The path of the Unix socket, if it is one."""
    host: str = ""
    port: int = 0
    """Where to connect to, if it is none."""

    @classmethod
    def parse(cls, text: str) -> RuntimeURL:
        """Parse a runtime URL, or raise ValueError."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError as exc:
            raise ValueError(f"cannot use the runtime URL {text!r}: {exc}") from exc
        if parts.scheme == "http+unix":
            path = unquote(parts.netloc + parts.path)
            if not path.startswith("/"):
                raise ValueError(
                    f"cannot use the runtime URL {text!r}: it does not name an absolute socket path"
                )
            return cls(text, "http://runtime", path)
        if parts.scheme != "http" or not host or parts.path.strip("/") or parts.query:
            raise ValueError(
                f"cannot use the runtime URL {text!r}: it is neither http://HOST:PORT nor "
                "http+unix://PERCENT-ENCODED-PATH"
            )
        if parts.username is not None:
            raise ValueError("cannot use a runtime URL with credentials; pass token=")
        shown = f"[{host}]" if ":" in host else host
        return cls(text, f"http://{shown}:{port or 80}", None, host, port or 80)
