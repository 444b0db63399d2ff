"""What is to leave by one end of the private socket: frames, as much at a time as it takes."""

from __future__ import annotations

import array
import errno
import socket
from collections import deque
from typing import Final

from agentix.wire.frames import Buffer, frame_prefix
from agentix_runtime.parcel import Parcel, Payload, drop

_BATCH: Final = 256


class Outbox:
    """Frames in the order they leave in, the first of them perhaps in part."""

    def __init__(self) -> None:
        self.frames: deque[tuple[Buffer, Parcel | None]] = deque()
        self.size = 0
        """The bytes of frames and parcels."""
        self.crowded = False
        """Whether too many descriptors are under way, so that no more pass for the moment."""

    def drop(self) -> None:
        """Let go of all."""
        self.size = 0
        while self.frames:
            drop(self.frames.popleft()[1])

    def add(self, head: bytes, payload: Payload) -> None:
        """Put a frame at the end; a parcel is its own from then on."""
        parcel, inline = (payload, b"") if isinstance(payload, Parcel) else (None, payload)
        frame = b"".join((frame_prefix(head, len(inline), parcel is not None), head, inline))
        self.frames.append((frame, parcel))
        self.size += len(frame) if parcel is None else len(frame) + parcel.size

    def push(self, sock: socket.socket) -> bool:
        """Send as much as the socket takes; ``False`` if it takes nothing any more."""
        self.crowded = False
        try:
            while self.frames:
                self._sent(self._send_some(sock))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as exc:
            # Too many descriptors under way is the one error that passes.
            self.crowded = exc.errno == errno.ETOOMANYREFS
            return self.crowded
        return True

    def _send_some(self, sock: socket.socket) -> int:
        first, parcel = self.frames[0]
        if parcel is not None:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [parcel.fd]))
            count = sock.sendmsg([first], [rights])
            # The descriptor has left with the first byte; the rest of the frame is only bytes.
            self.size -= parcel.size
            parcel.close()
            self.frames[0] = (first, None)
            return count
        if len(self.frames) == 1:
            return sock.send(first)
        batch: list[Buffer] = []
        for frame, following in self.frames:
            if following is not None or len(batch) == _BATCH:
                break
            batch.append(frame)
        return sock.sendmsg(batch)

    def _sent(self, count: int) -> None:
        self.size -= count
        while count:
            frame, parcel = self.frames.popleft()
            if len(frame) > count:
                self.frames.appendleft((memoryview(frame)[count:], parcel))
                return
            count -= len(frame)
