"""Read what Nix tells while it builds (its ``internal-json`` log): progress, and why it failed."""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX = "@nix "
_BUILD = 105  # kind of activity: one derivation
_LOG_LINE = 101  # kind of result: a line that its builder printed
_KEPT = 40  # lines of each builder
_WARNING = "agentix warning: "  # how a builder of ours begins what it wants to be read
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_DERIVATION = re.compile(r"/nix/store/[0-9a-z]{32}-[0-9A-Za-z+._?=-]+\.drv")
_UNLIKE = re.compile(
    r"output '(?P<first>/nix/store/[^']+)' differs from '(?P<second>/nix/store/[^']+)'"
)
_KEPT_FOLDER = re.compile(r"note: keeping build directory '(?P<folder>/[^']+)'")
_STATUS = re.compile(r"exit code (\d+)|due to signal (\d+)")


@dataclass(slots=True)
class _Builder:
    derivation: str
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))


@dataclass(slots=True)
class BuildLog:
    """What happened in one run of Nix, fed line by line.

    ``warnings`` are our builders' own, ``folders`` what Nix left of builds that it was to keep.
    """

    on_built: Callable[[], None]
    warnings: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    _running: dict[int, _Builder] = field(default_factory=dict)
    _ended: dict[str, _Builder] = field(default_factory=dict)
    _errors: list[str] = field(default_factory=list)
    _other: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def feed(self, line: str) -> None:
        """Take in one line of Nix's standard error."""
        event: Any = None
        if line.startswith(_PREFIX):
            try:
                event = json.loads(line.removeprefix(_PREFIX))
            except ValueError:
                event = None
        if not isinstance(event, dict):
            self._other.append(plain(line))
            return
        match event:
            case {"action": "start", "type": kind, "id": int(number)} if kind == _BUILD:
                fields = event.get("fields") or [""]
                self._running[number] = _Builder(str(fields[0]))
            case {"action": "result", "type": kind, "id": number, "fields": [str(text), *_]} if (
                kind == _LOG_LINE and number in self._running
            ):
                said = plain(text)
                self._running[number].lines.append(said)
                if said.startswith(_WARNING):
                    self.warnings.append(said.removeprefix(_WARNING))
            case {"action": "stop", "id": number} if number in self._running:
                builder = self._running.pop(number)
                self._ended[builder.derivation] = builder
                self.on_built()
            case {"action": "msg", "level": 0, "msg": str(text)}:
                said = plain(text)
                if folder := _KEPT_FOLDER.search(said):
                    self.folders.append(folder["folder"])
                else:
                    self._errors.append(said)
            case {"action": "msg", "level": 1, "msg": str(text)}:
                self._other.append(plain(text))

    @property
    def built(self) -> int:
        """How many derivations have been built, or have failed."""
        return len(self._ended)

    def unlike(self) -> list[tuple[str, str]]:
        """Return the outputs that a second build did not give again, and where that one's are."""
        found = (_UNLIKE.search(error) for error in self._errors)
        return sorted({(each["first"], each["second"]) for each in found if each})

    def failure(self) -> Failure:
        """Return why the run failed, as far as Nix told."""
        error = self._first_cause()
        status = _STATUS.search(error)
        for derivation in _DERIVATION.findall(error):
            if derivation in self._ended:
                lines = [line for line in self._ended[derivation].lines if line.strip()]
                number = int(status[1]) if status and status[1] else None
                return Failure(error, derivation, number, lines)
        return Failure(error, None, None, list(self._other))

    def _first_cause(self) -> str:
        """Return the error of the step that failed itself, not of those that waited for it."""
        for error in self._errors:
            if _STATUS.search(error):
                return error
        for error in self._errors:
            if not re.search(r"\d+ dependenc(y|ies) of derivation|Reason: \d+ dependenc", error):
                return error
        return "\n".join([*self._errors, *self._other]) or "Nix printed nothing"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run of Nix failed; when a builder did, which one, how, and its last words."""

    error: str
    derivation: str | None
    status: int | None
    lines: list[str]

    @property
    def step(self) -> str | None:
        """The name of the derivation that failed, without folder, hash and suffix."""
        return self.derivation and self.derivation[len("/nix/store/") + 33 : -len(".drv")]


def plain(text: str) -> str:
    """Return *text* without colours and control characters, as it may be shown on any terminal."""
    return _CONTROL.sub("", _COLOUR.sub("", text)).rstrip()
