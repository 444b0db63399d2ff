"""Items in a line arrive once and in order, whenever the connection breaks."""

from __future__ import annotations

import random

import pytest

from agentix.wire.errors import MalformedError
from agentix.wire.line import MAX_ITEMS, Line


def test_items_arrive_once_and_in_order_over_a_wire_that_breaks() -> None:
    dice = random.Random(7)
    for _ in range(200):
        sender, receiver = Line(), Line()
        arrived: list[int] = []
        made = 0
        while len(arrived) < 50:
            if made < 50 and dice.random() < 0.5:
                made += 1
                sender.add("/x", "e", made)
            for item in sender.unsent():
                if dice.random() < 0.2:  # the connection breaks: this and what follows is lost
                    sender.resume(receiver.seen)
                    break
                if receiver.arrived(item.number):
                    arrived.append(item.arguments[0])
                if dice.random() < 0.3:
                    sender.taken(receiver.seen)
        assert arrived == list(range(1, 51))
        sender.taken(receiver.seen)
        assert sender.empty


def test_numbers_that_cannot_be_are_malformed() -> None:
    line = Line()
    line.add("/x", "e")
    for number in (2, -1, "1", None, True, 1.0):
        with pytest.raises(MalformedError):
            line.taken(number)
    for number in (0, 2, -1, "1", None, True, 1.0):
        with pytest.raises(MalformedError):
            line.arrived(number)
    assert line.arrived(1)
    assert not line.arrived(1)


def test_a_line_is_bounded_in_items_and_bytes() -> None:
    line = Line()
    for number in range(MAX_ITEMS):
        assert (line.full, line.crowded) == (False, number > MAX_ITEMS // 2)
        line.add("/x", "e")
    assert (line.full, line.crowded) == (True, True)
    line.taken(MAX_ITEMS - 1)
    assert (line.full, line.crowded) == (False, False)
    for _ in range(3):
        line.add("/x", "e", size=64 << 20)
    assert line.full
