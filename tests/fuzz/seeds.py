"""Real encodings, of which the fuzzer makes hostile ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from every_message import MESSAGES

from agentix.wire import messages, plain, records
from agentix.wire.frames import MARK, body_prefix, frame_prefix, pieces
from agentix.wire.messages import Failure, Item, Records, Value
from agentix.wire.packets import StrictPacket, event_packet
from agentix.wire.records import Log, Output, SpanEvent, TraceEvent
from agentix.wire.values.encode import encode
from fuzz.project import sample
from fuzz.targets import joined

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRIES: list[records.Entry] = [
    Log(1, 20, "app", "hello x", "hello %s", ["x"], extra={"a": [1, None, {"b": 1.5}]}),
    Output(2, "stderr", "a line"),
    TraceEvent("start", "0" * 32, "rollout", 1, 0, {"model": "m"}),
    SpanEvent("end", "0" * 32, "1" * 16, "", "s", 1, 2, "ok", "", {"k": 1}, [["e", 1, {}]]),
]


def _values() -> list[bytes]:
    return [joined(*encode(value)) for value in sample().values()]


def _records() -> list[bytes]:
    encoded = [records.prefixed(records.dump(one)) for one in ENTRIES]
    return [bytes([len(encoded)]) + b"".join(encoded), *(b"\1" + one for one in encoded)]


def _events() -> list[bytes]:
    events: list[Any] = [None, {"a": [1, 2.5, "x", b"y", {"n": None}]}, [[]] * 3]
    return [plain.dump(one) for one in events]


def _packets() -> list[bytes]:
    return [
        event_packet("/rpc", "answer", 1, b"bytes"),
        event_packet("/plugin", "event", {"a": [1]}),
        StrictPacket(3, data=[1], namespace="/rpc", id=5).encode(),
        StrictPacket(0, data={"sid": "x"}, namespace="/rpc").encode(),
        StrictPacket(1, namespace="/rpc").encode(),
    ]


def _answers() -> list[bytes]:
    answers = []
    for value in sample().values():
        document, buffers = encode(value)
        kinds = "".join("b" if type(one) is bytes else "a" for one in buffers)
        segments = (len(document), *map(len, buffers))
        head = messages.dump(Value("c-1", "values", kinds, segments))
        answers.append(b"".join([MARK.pack(3), body_prefix(head), *pieces([document], buffers)]))
    failure = messages.dump(Failure("c-1", "raised", "ValueError", "no", "Traceback"))
    answers.append(MARK.pack(0) + body_prefix(failure))
    document, _ = encode([1, "x"])
    item = body_prefix(messages.dump(Item("c-1", 1, "values", "", (len(document),)))) + document
    end = body_prefix(messages.dump(Value("c-1", "values", "", (0,))))
    answers.append(MARK.pack(9) + item * 3 + end)
    journal = b"".join(records.prefixed(records.dump(one)) for one in ENTRIES)
    head = messages.dump(Records("j", 1, len(ENTRIES), (len(journal),)))
    answers.append(MARK.pack(4) + body_prefix(head) + journal)
    return answers


def _http() -> list[bytes]:
    heads = [
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
        b"HTTP/1.1 200\r\nServer: x\r\nConnection: close\r\ncontent-length:%d \r\n\r\n",
    ]
    made = [b"\x40" + head % len(body) + body for head in heads for body in _answers()]
    return [*made, b"\1HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found"]


def _frames() -> list[bytes]:
    made = []
    for message in MESSAGES:
        head = messages.dump(message)
        payload = bytes(sum(getattr(message, "segments", ())))
        made.append(frame_prefix(head, len(payload), False) + head + payload)
    return [*made, b"".join(made), frame_prefix(b"", 0, True)]


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "answer": _answers,
    "channel": _frames,
    "event": _events,
    "http": _http,
    "message": lambda: [messages.dump(message) for message in MESSAGES],
    "packet": _packets,
    "record": _records,
    "values": _values,
}
