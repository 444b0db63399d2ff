"""What others chose to call themselves cannot move a terminal's cursor."""

from __future__ import annotations

from agentix.text import plain, quoted


def test_what_others_chose_is_shown_as_one_printable_line() -> None:
    assert plain("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\nb\\u202e"
    assert plain(b"\xff\xfe") == "\\xff\\xfe"
    assert plain("\udc80") == "\\udc80"
    assert len(plain("x" * 1000)) == 240


def test_a_text_of_lines_keeps_its_lines() -> None:
    assert plain("a\n\tb\r\x1bc", None, keep="\n\t") == "a\n\tb\\r\\x1bc"
    assert len(plain("x\n" * 1000, None, keep="\n")) == 2000


def test_a_name_in_a_message_is_on_one_line_and_bounded() -> None:
    assert quoted("debian:12") == "'debian:12'"
    assert quoted("a\nb") == "'a\\nb'"
    assert len(quoted("x" * 5000)) == 242
