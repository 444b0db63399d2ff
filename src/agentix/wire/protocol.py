"""The version of the wire, and the bounds that all its readers enforce."""

from __future__ import annotations

from typing import Final

PROTOCOL = 3

CONTENT_TYPE: Final = f"application/vnd.agentix.v{PROTOCOL}"
"""The type of a request's body; a runtime of another version refuses it and names its own."""

LEASE_ENDED: Final = 110
"""The exit status of a runtime that nobody has held for as long as its lease says."""

MAX_HEAD: Final = 1 << 20
"""Bytes of one encoded message without its payload."""

MAX_INLINE: Final = 256 << 10
"""Bytes of a payload that travel inside a frame between server and worker; more is shared."""

MAX_PAYLOAD: Final = 1 << 34
"""Bytes of all arguments of a call, or of its result."""

MAX_RESULT: Final = 4 << 30
"""Bytes of a result that a host accepts."""

MAX_DOCUMENT: Final = 64 << 20
"""Bytes of an encoded result without its out-of-band buffers."""

MAX_ELEMENTS: Final = 4 << 20
"""Elements of all arrays in such a document: each of them costs its reader up to a hundred bytes,
however few it has taken on its way."""

OUT_OF_BAND: Final = 16 << 10
"""Bytes from which a binary leaf travels beside its document instead of inside it."""

MAX_BUFFERS: Final = 1 << 15
"""Out-of-band buffers of one payload."""

MAX_WAIT: Final = 3_600_000
"""Milliseconds for which a request may be held open until there is something to answer."""

WINDOW: Final = 16
"""Items of a stream that may be made before the caller has asked for the ones after them."""

WINDOW_BYTES: Final = 8 << 20
"""Bytes of such items from which on no more are made."""

MAX_RECORD: Final = 16 << 20
"""Bytes of one encoded log record or span; longer texts in it are cut in the middle."""

MAX_SIGNAL: Final = 64 << 20
"""Bytes of the data of one namespace event."""

MAX_EVENT: Final = MAX_SIGNAL + MAX_HEAD
"""Bytes of one Socket.IO packet; both sides take no longer one, and neither sends one."""

MAX_ID: Final = 64
MAX_NAME: Final = 256
"""Characters of the name of a namespace or of an event."""
MAX_TARGET: Final = 1024
MAX_TEXT: Final = 64 << 10
"""Characters of one text in a failure; longer ones are cut in the middle."""
