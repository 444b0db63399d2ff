"""What breaks is taken up again, and what is not what was locked is refused."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientTimeout
from mirror.fetching import QUICK, bring, left_in_cache, stored
from mirror.offers import content, package
from mirror.server import confused, cut, good, instead, silent, status, whole

from agentix.build import download as downloading
from agentix.errors import FetchError
from agentix.patience import Patience, retry_after

if TYPE_CHECKING:
    from mirror.server import Behaviour, Server

pytestmark = pytest.mark.nix


def test_a_broken_transfer_goes_on_where_it_ended(server: Server) -> None:
    data = content()
    file = package(server, data, cut, cut, good)
    bring(file)
    assert stored(file) == data
    first, second, third = server.requests
    assert "Range" not in first.headers
    assert second.headers["Range"] == f"bytes={len(data) // 2}-"
    assert int(third.headers["Range"][6:-1]) > len(data) // 2


@pytest.mark.parametrize("behaviour", [whole, confused], ids=["no ranges", "wrong range"])
def test_a_server_that_cannot_resume_is_asked_for_the_whole_file(
    server: Server, behaviour: Behaviour
) -> None:
    data = content()
    file = package(server, data, cut, behaviour)
    bring(file)
    assert stored(file) == data


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_a_server_that_is_not_well_is_asked_again(server: Server, code: int) -> None:
    data = content(1000)
    file = package(server, data, status(code), status(code), good)
    bring(file)
    assert stored(file) == data
    assert len(server.requests) == 3


def test_a_server_that_never_gets_well_is_given_up(server: Server) -> None:
    file = package(server, content(1000), status(503))
    with pytest.raises(FetchError, match=r"tool_1.0-1_amd64.deb .* 503 .*tried 4 times"):
        bring(file)
    assert len(server.requests) == QUICK.tries


@pytest.mark.parametrize("code", [400, 401, 403, 418])
def test_a_refusal_is_final(server: Server, code: int) -> None:
    file = package(server, content(1000), status(code))
    with pytest.raises(FetchError, match=f"tool_1.0-1_amd64.deb .*answered {code}"):
        bring(file)
    assert len(server.requests) == 1


def test_a_server_that_says_when_to_come_back_is_heeded_within_reason(server: Server) -> None:
    data = content(1000)
    file = package(server, data, status(429, Retry_After="1"), good)
    started = time.monotonic()
    bring(file)
    assert time.monotonic() - started >= 1
    assert Patience().delay(1, 86400.0) <= 60
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") < 0  # type: ignore[operator]
    assert Patience().delay(1, -1.0) == 0
    assert retry_after("soon") is None


def test_waits_between_tries_grow_and_end() -> None:
    waits = [Patience().delay(failures, None) for failures in range(1, 40)]
    assert waits[0] < 1
    assert waits[2] > waits[0]
    assert max(waits) <= 24


def test_a_server_that_stops_sending_is_left_and_resumed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentix.build.session._TIMEOUT", ClientTimeout(total=None, sock_read=0.3))
    data = content()
    file = package(server, data, silent, good)
    bring(file)
    assert stored(file) == data
    assert server.requests[1].headers["Range"] == "bytes=1000-"


def test_nobody_answering_is_one_clear_error(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = package(server, content(1000))
    monkeypatch.setenv("AGENTIX_DEBIAN_MIRROR", "http://user:secret@127.0.0.1:9/debian")
    with pytest.raises(
        FetchError, match=r"cannot fetch tool_1.0-1_amd64.deb from http://127"
    ) as caught:
        bring(file)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_bytes_are_refused_by_name_and_both_hashes(server: Server) -> None:
    data, other = content(5000), content(5000)
    file = package(server, data, instead(other))
    with pytest.raises(FetchError) as caught:
        bring(file)
    for part in (file.file, file.sha256, hashlib.sha256(other).hexdigest(), "nothing was added"):
        assert part in str(caught.value)
    assert stored(file) is None
    assert left_in_cache() == []


@pytest.mark.parametrize("size", [4000, 9000], ids=["shorter", "longer"])
def test_a_file_of_another_length_is_refused(server: Server, size: int) -> None:
    file = package(server, content(5000), instead(content(size)))
    with pytest.raises(FetchError, match="not what was locked"):
        bring(file)
    assert stored(file) is None
    assert len(server.requests) == 1


def test_a_file_of_unknown_size_is_resumed_and_known_when_it_is_whole(server: Server) -> None:
    data = content()
    file = package(server, data, cut, good).model_copy(update={"size": None})
    bring(file)
    assert stored(file) == data
    assert len(server.requests) == 2


def test_a_file_of_unknown_size_has_a_limit(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "_LARGEST", 4000)
    file = package(server, content(5000)).model_copy(update={"size": None})
    with pytest.raises(FetchError, match="a file of more than 4000 bytes"):
        bring(file)
    assert stored(file) is None


def test_a_replaced_package_names_what_to_do(server: Server) -> None:
    file = package(server, content(1000))
    server.files.clear()
    with pytest.raises(FetchError) as caught:
        bring(file)
    for part in ("tool 1.0-1", "AGENTIX_DEBIAN_MIRROR", "agentix lock --upgrade", file.pool or ""):
        assert part in str(caught.value)
    assert len(server.requests) == 1
