"""Text that somebody else has chosen, made harmless to terminals and logs."""

from __future__ import annotations


def plain(text: str | bytes, limit: int | None = 240, *, keep: str = "") -> str:
    r"""Return *text*, which a hostile file or sandbox may have chosen, with nothing but letters.

    Control characters appear as escapes, except those to *keep*: ``"\n\t"`` in a text of lines.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
        )
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def quoted(name: str, limit: int = 240) -> str:
    """Return *name* in quotes for a message: on one line, and cut where it is longer than any."""
    return repr(name if len(name) <= limit else name[: limit - 1] + "…")
