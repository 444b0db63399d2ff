"""One connection to an engine on another machine, spoken by hand where the SDK cannot.

The SDK's way to a stream in both directions differs from one kind of connection to the next.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any, Final

from agentix.errors import ProviderError
from agentix.provider.docker.dialing import dial, why_it_ended
from agentix.provider.docker.problems import RefusedError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentix.provider.docker.address import Address

ANSWER: Final = 20.0
"""Seconds that an answer may take, of a request that is answered at once."""

_AHEAD: Final = 1 << 16
_STREAM: Final = {"Connection": "Upgrade", "Upgrade": "tcp"}


class Line:
    """A new connection to an engine, on which requests follow one another.

    Every method raises ProviderError when the engine cannot be reached or refuses.
    """

    def __init__(self, where: Address) -> None:
        self._where = where
        self.stream = dial(where)
        self.stream.settimeout(ANSWER)
        self._http = http.client.HTTPConnection("engine")
        self._http.auto_open = 0
        self._http.sock = self.stream
        self._answer: http.client.HTTPResponse | None = None

    def close(self) -> None:
        """End the connection."""
        if self._answer is not None:
            self._answer.close()  # which has the connection open as well
        self.stream.close()

    def version(self) -> str:
        """Return the version of the API that the engine speaks, as the first thing that it says."""
        what = "say which version it is"
        answer, body = self._ask("GET", "/_ping", None, what)
        if answer.status != 200:
            raise RefusedError(self._where.kind, what, _reason(body), answer.status)
        return answer.getheader("Api-Version") or "1.24"

    def post(self, path: str, body: Mapping[str, Any], what: str) -> Any:
        """Return the answer to a request, in words what it asks the engine to do."""
        answer, text = self._ask("POST", path, body, what)
        if answer.status >= 300:
            raise RefusedError(self._where.kind, what, _reason(text), answer.status)
        return json.loads(text or b"null")

    def hijack(self, path: str, body: Mapping[str, Any] | None, what: str) -> bytes:
        """Make a stream of the connection; return what has come of it by now.

        It is what the container reads, and, in frames, what it writes.
        """
        answer = self._begin("POST", path, body, what, stream=True)
        if answer.status not in {101, 200}:
            with self._explained(what):
                text = answer.read()
            raise RefusedError(self._where.kind, what, _reason(text), answer.status)
        self.stream.setblocking(False)
        try:
            return answer.fp.peek(_AHEAD)
        except ssl.SSLWantReadError:
            return b""
        finally:
            answer.close()
            self.stream.setblocking(True)

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, what: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        answer = self._begin(method, path, body, what)
        with self._explained(what):
            return answer, answer.read()

    def _begin(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        what: str,
        *,
        stream: bool = False,
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json"} | (_STREAM if stream else {})
        with self._explained(what):
            text = None if body is None else json.dumps(body)
            self._http.request(method, path, text, headers)
            self._answer = self._http.getresponse()
            return self._answer

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        where = self._where
        engine = f"the {where.kind.title()} engine at {where.url}"
        try:
            yield
        except TimeoutError as error:
            message = f"{engine} did not answer within {ANSWER:g} s, asked to {what}"
            raise ProviderError(message) from error
        except (OSError, http.client.HTTPException) as error:
            why = why_it_ended(self.stream) or _ended(error)
            raise ProviderError(f"no answer from {engine}: {why}") from error


def _ended(error: Exception) -> str:
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return "the connection ended"
    return one_line(error)


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return one_line(body.decode(errors="replace"))
