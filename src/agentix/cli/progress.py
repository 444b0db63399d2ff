"""Show the steps of long work: live on a terminal, one plain line a step elsewhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from agentix.progress import Progress, Step, Unit


@contextmanager
def terminal_progress(stream: TextIO | None = None) -> Iterator[Progress]:
    """Yield a :class:`~agentix.progress.Progress` that writes to *stream* (standard error)."""
    stream = stream or sys.stderr
    if stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI"):
        yield _Live(stream)
    else:
        yield _Plain(stream)


def _took(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


class _Line:
    """A step, and the line that it leaves behind."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.text = ""
        self.started = time.perf_counter()

    def advance(self, amount: int = 1) -> None:
        pass

    def outcome(self, text: str) -> None:
        self.text = text

    def render(self, *, failed: bool) -> str:
        state = "failed" if failed else self.text or "done"
        return f"{self.title:<8} {state:<60} {_took(time.perf_counter() - self.started):>7}"


class _Plain:
    """One line a step, written when the step ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextmanager
    def step(self, title: str, *, total: int | None = None, unit: Unit = "items") -> Iterator[Step]:
        line = _Line(title)
        try:
            yield line
        except BaseException:
            print(line.render(failed=True), file=self._stream, flush=True)
            raise
        print(line.render(failed=False), file=self._stream, flush=True)


class _LiveStep(_Line):
    def __init__(self, title: str, bar: RichProgress, task: TaskID) -> None:
        super().__init__(title)
        self._bar = bar
        self._task = task

    def advance(self, amount: int = 1) -> None:
        self._bar.advance(self._task, amount)


class _Live:
    """A bar or spinner while a step runs; the same plain line stays when it has ended."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream)

    @contextmanager
    def step(self, title: str, *, total: int | None = None, unit: Unit = "items") -> Iterator[Step]:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.text import Text

        columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description:<8}")]
        if total is not None:
            columns += [BarColumn(), DownloadColumn() if unit == "bytes" else MofNCompleteColumn()]
        columns.append(TimeElapsedColumn())
        failed = True
        bar = Progress(*columns, console=self._console, transient=True)
        with bar:
            step = _LiveStep(title, bar, bar.add_task(title, total=total))
            try:
                yield step
                failed = False
            finally:
                bar.stop()
                mark = Text("✗ ", "red") if failed else Text("✓ ", "green")
                self._console.print(mark + step.render(failed=failed), soft_wrap=True)
