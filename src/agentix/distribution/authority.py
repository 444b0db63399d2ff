"""What proves to a registry that a request may be made: Basic, or tokens that somebody issues."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import TYPE_CHECKING

from yarl import URL

from agentix.distribution.challenge import challenges
from agentix.errors import DistributionError
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from agentix.distribution.challenge import Challenge
    from agentix.distribution.login import Login
    from agentix.distribution.place import Place

    # Asks an address, with headers and perhaps a form; gives the status and the body.
    Ask = Callable[[URL, dict[str, str], dict[str, str] | None], Awaitable[tuple[int, bytes]]]

_LOG_IN = "log in with docker login, podman login or skopeo login"


class Authority:
    """Answers the challenges of one registry with the *login* of its user, who may have none."""

    def __init__(self, place: Place, login: Login | None, ask: Ask) -> None:
        self._place = place
        self._login = login
        self._ask = ask
        self._basic = False
        self._tokens: dict[str, str] = {}
        self._one = asyncio.Lock()

    def headers(self, scope: str) -> dict[str, str]:
        """Return what to send with a request that needs *scope*."""
        if self._basic and self._login is not None:
            return {"Authorization": _basic(self._login)}
        token = self._tokens.get(scope)
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    async def satisfy(self, asked: Iterable[str], scope: str, refused: dict[str, str]) -> None:
        """Obtain what a registry *asked* for (its ``WWW-Authenticate``) to let *scope* happen.

        *refused* is what was sent and did not do. Raises DistributionError when nothing can be had.
        """
        async with self._one:
            if self.headers(scope) == refused:  # else another request has obtained it
                await self._obtain(asked, scope, refused)

    async def _obtain(self, asked: Iterable[str], scope: str, refused: dict[str, str]) -> None:
        found = {each.scheme: each for each in reversed(challenges(asked))}
        if "bearer" in found:
            self._tokens[scope] = await self._token(found["bearer"], scope)
        elif "basic" in found and self._login is not None and not self._login.is_token:
            if refused:
                raise self.denied()
            self._basic = True
        elif found.keys() - {"basic"}:
            raise DistributionError(
                f"{self._place.host} asks for a login in a way that is not known here"
                f" ({plain(', '.join(sorted(found)), 80)})"
            )
        else:
            raise self.denied()

    def denied(self) -> DistributionError:
        """Return the error for who is not let in."""
        host = self._place.host
        if self._login is None:
            return DistributionError(f"{host} wants to know who you are; {_LOG_IN}")
        return DistributionError(
            f"{host} does not let this login use {self._place.repository}; check the name and what"
            f" you may do there, or {_LOG_IN} as somebody else"
        )

    async def _token(self, challenge: Challenge, scope: str) -> str:
        given = challenge.parameters
        try:
            realm = URL(given["realm"])
        except (KeyError, ValueError):
            realm = URL()
        if not realm.host or realm.user or realm.password:
            raise DistributionError(f"{self._place.host} does not say where tokens are issued")
        query = {"scope": scope} | ({"service": given["service"]} if "service" in given else {})
        login = self._login
        if login is not None and login.is_token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": login.secret,
                "client_id": "agentix",
                **query,
            }
            status, body = await self._ask(realm, {}, form)
        else:
            headers = {} if login is None else {"Authorization": _basic(login)}
            # A scope of several is several scopes: the form that every issuer understands.
            pairs = [("scope", each) for each in scope.split(" ")]
            pairs += [("service", given["service"])] if "service" in given else []
            status, body = await self._ask(realm.extend_query(pairs), headers, None)
        if status in (400, 401, 403, 404):
            raise self.denied()
        try:
            answer = json.loads(body) if status == 200 else {}
            token = answer.get("token") or answer.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise DistributionError(
                f"{realm.host}, which issues tokens for {self._place.host}, gave none"
                f" (it answered {status})"
            )
        return token


def _basic(login: Login) -> str:
    return "Basic " + b64encode(f"{login.user}:{login.secret}".encode()).decode()
