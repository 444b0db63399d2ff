from __future__ import annotations

from agentix.provider.output import OutputTail, account


def test_memory_is_bounded_whatever_is_fed_and_the_end_is_kept() -> None:
    tail = OutputTail(limit=100)
    for number in range(10_000):
        tail.feed(f"line {number}\n".encode())
    tail.feed(b"z" * 1000)
    assert tail.text() == "z" * 100
    assert len(tail._kept) <= 300


def test_the_account_is_one_printable_line() -> None:
    tail = OutputTail()
    tail.feed(b"one\n\n  two\x1b[31m\r\nth\xff\xe9ree\n")
    clause = account(tail.text())
    assert "\n" not in clause
    assert "\x1b" not in clause
    assert clause.startswith("its output ends with: one | two[31m | th")


def test_silence_is_said_to_be_silence() -> None:
    assert account(OutputTail().text()) == "it printed nothing"
