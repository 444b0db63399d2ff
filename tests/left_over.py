"""What this process must not have more of than before: open descriptors, threads and children.

Less of them is fine: what another test left to the garbage, or to the end of a thread, may go
meanwhile. So whatever came is told by what it is, never by how many there are.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from local_runtime import descriptors
from procfs import children

if TYPE_CHECKING:
    from collections.abc import Iterator

_WITHIN: Final = 5.0
"""Seconds for threads and sockets that were told to end to have done so."""


@contextmanager
def nothing_left(*, threads: bool = True) -> Iterator[None]:
    """Compare what there is after the block with what there was before it.

    Without *threads*, these do not count: those of a pool stay for a while, for what comes next.
    """
    before = _possessions(threads)
    yield
    gc.collect()
    end = time.monotonic() + _WITHIN
    while (left := _possessions(threads) - before) and time.monotonic() < end:
        time.sleep(0.01)
    assert not left, f"left behind: {', '.join(sorted(left.elements()))}"


def _possessions(threads: bool) -> Counter[str]:
    alive = threading.enumerate() if threads else []
    running = (f"thread {one.name} {one.ident}" for one in alive)
    offspring = (f"child {pid}" for pid in children())
    return Counter((*descriptors(), *running, *offspring))
