"""Who somebody is at a registry is the user's own business: found where it is kept, told nobody."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from images.registry import PASSWORD, USER

from agentix.distribution import pull, push
from agentix.distribution.challenge import challenges
from agentix.distribution.login import Login, find_login
from agentix.distribution.place import Place
from agentix.errors import DistributionError
from distribution.conftest import QUICK, serving
from distribution.front import Front

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentix.bundle import BundleCache

AUTH = b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def entry(user: str, secret: str) -> dict[str, str]:
    return {"auth": b64encode(f"{user}:{secret}".encode()).decode()}


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def helper(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / f"docker-credential-{name}"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


PLACE = Place.parse("registry.example:5000/team/project/thing:1")


@pytest.mark.parametrize(
    ("auths", "expected"),
    [
        ({"registry.example:5000": entry("u", "s")}, Login("u", "s")),
        ({"https://registry.example:5000/v2/": entry("u", "s")}, Login("u", "s")),
        ({"http://registry.example:5000": entry("u", "a:b")}, Login("u", "a:b")),
        (
            {
                "registry.example:5000": entry("u", "s"),
                "registry.example:5000/team": entry("t", "s"),
                "registry.example:5000/team/project": entry("p", "s"),
                "registry.example:5000/team/other": entry("o", "s"),
            },
            Login("p", "s"),
        ),
        ({"registry.example:5000": {"identitytoken": "it", **entry("u", "")}}, Login("", "it")),
        ({"registry.example": entry("u", "s")}, None),
        ({"registry.example:5000": {}}, None),
        ({}, None),
    ],
)
def test_a_login_is_found_as_other_programs_find_it(
    home: Path, auths: dict[str, Any], expected: Login | None
) -> None:
    write(home / ".docker/config.json", {"auths": auths, "HttpHeaders": {"x": "y"}})
    assert find_login(PLACE) == expected


def test_the_hub_is_known_by_its_names(home: Path) -> None:
    place = Place.parse("docker.io/user/thing")
    write(home / ".docker/config.json", {"auths": {place.login: entry("u", "s")}})
    assert find_login(place) == Login("u", "s")
    assert place.listens != place.host


def test_the_files_are_looked_at_in_order(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def login(user: str) -> object:
        return {"auths": {PLACE.host: entry(user, "s")}}

    write(home / ".docker/config.json", login("docker"))
    assert find_login(PLACE) == Login("docker", "s")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "chosen"))
    assert find_login(PLACE) is None
    write(tmp_path / "chosen/config.json", login("chosen"))
    assert find_login(PLACE) == Login("chosen", "s")
    write(home / ".config/containers/auth.json", login("containers"))
    assert find_login(PLACE) == Login("containers", "s")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    write(tmp_path / "run/containers/auth.json", login("run"))
    assert find_login(PLACE) == Login("run", "s")
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "only.json"))
    assert find_login(PLACE) is None
    write(tmp_path / "only.json", login("only"))
    assert find_login(PLACE) == Login("only", "s")


def test_helpers_are_asked(home: Path, programs: Path) -> None:
    answer = '{"ServerURL":"x","Username":"helped","Secret":"s"}'
    helper(programs, "store", f"read server; test $server = {PLACE.host} && echo '{answer}'")
    write(home / ".docker/config.json", {"credsStore": "store", "auths": {PLACE.host: {}}})
    assert find_login(PLACE) == Login("helped", "s")
    helper(programs, "own", f"""echo '{answer.replace("helped", "<token>")}'""")
    write(home / ".docker/config.json", {"credsStore": "store", "credHelpers": {PLACE.host: "own"}})
    found = find_login(PLACE)
    assert found is not None
    assert found.is_token


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'credentials not found in native keychain'; exit 1", None),
        ("echo my-secret; echo my-secret >&2; exit 1", "cannot give the login"),
        ("echo my-secret", "gave no login"),
        ('echo \'{"Secret":"my-secret"}\'', "gave no login"),
    ],
)
def test_a_helper_that_fails_is_said_without_what_it_said(
    home: Path, programs: Path, script: str, problem: str | None
) -> None:
    helper(programs, "store", script)
    write(home / ".docker/config.json", {"credsStore": "store"})
    if problem is None:
        assert find_login(PLACE) is None
        return
    with pytest.raises(DistributionError, match=problem) as caught:
        find_login(PLACE)
    assert "my-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ('{"credsStore": "../../evil"}', "helper for logins that cannot be one"),
        ('{"credsStore": "absent"}', "not installed"),
        ('{"auths": {"registry.example:5000": {"auth": "bXktc2VjcmV0"}}}', "is damaged"),
        ('{"auths": {"registry.example:5000": {"auth": "%%%"}}}', "is damaged"),
    ],
)
def test_a_damaged_file_is_said_without_what_is_in_it(home: Path, text: str, problem: str) -> None:
    (home / ".docker").mkdir()
    (home / ".docker/config.json").write_text(text)
    with pytest.raises(DistributionError, match=problem) as caught:
        find_login(PLACE)
    assert "my-secret" not in str(caught.value)
    assert "bXktc2VjcmV0" not in str(caught.value)


def test_a_challenge_is_taken_apart() -> None:
    (bearer, basic) = challenges(
        ['Bearer realm="https://a/b?c=d,e",service="x y",scope="s:\\"t\\"", Basic realm=z']
    )
    assert bearer.scheme == "bearer"
    assert bearer.parameters == {
        "realm": "https://a/b?c=d,e",
        "service": "x y",
        "scope": 's:"t"',
    }
    assert (basic.scheme, basic.parameters) == ("basic", {"realm": "z"})
    assert challenges(["", ",,,", "=", '"', "Negotiate"])[-1].scheme == "negotiate"


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("private"), private=True) as address:
        yield address


def test_a_registry_that_wants_a_password_gets_it(
    private: str, home: Path, tar: Path, tmp_path: Path, cache: BundleCache
) -> None:
    with Front(private) as front:
        name = f"{front.address}/test/thing:1"
        for action in (lambda: push(tar, name, cache=cache), lambda: pull(name, cache=cache)):
            with pytest.raises(DistributionError, match="wants to know who you are; log in"):
                action()
        write(home / ".docker/config.json", {"auths": {front.address: entry(USER, "wrong")}})
        with pytest.raises(DistributionError, match="does not let this login") as caught:
            push(tar, name, cache=cache)
        assert "wrong" not in str(caught.value)
        write(home / ".docker/config.json", {"auths": {front.address: {"auth": AUTH}}})
        assert push(tar, name, cache=cache).sent == 2
        pull(name, output=tmp_path / "out.tar", cache=cache)
    assert (tmp_path / "out.tar").read_bytes() == tar.read_bytes()


class Issuer:
    """Issues tokens as a registry's own service does, and asks for them in front of a registry."""

    def __init__(self, front: Front, realm: str = "") -> None:
        self.front = front
        self.realm = realm or f"http://{front.address}/token"
        self.asked: list[tuple[str, dict[str, list[str]], str]] = []
        self.lifetime = 10**6  # uses of a token
        self.left: dict[str, int] = {}
        front.meddle = self

    def __call__(self, request: web.Request) -> web.StreamResponse | None:
        if request.path == "/token":
            said = request.headers.get("Authorization", "")
            self.asked.append((request.method, parse_qs(request.query_string), said))
            if said not in ("", f"Basic {AUTH}"):
                return web.Response(status=401)
            token = f"token-{len(self.asked)}"
            self.left[f"Bearer {token}"] = self.lifetime
            return web.json_response({"access_token": token})
        said = request.headers.get("Authorization", "")
        self.left[said] = self.left.get(said, 0) - 1
        if self.left[said] >= 0:
            return None
        challenge = f'Bearer realm="{self.realm}",service="test",scope="ignored"'
        return web.json_response({}, status=401, headers={"WWW-Authenticate": challenge})


def test_a_registry_that_wants_tokens_gets_them(
    front: Front, name: str, home: Path, tar: Path, tmp_path: Path, cache: BundleCache,
    elsewhere: BundleCache,
) -> None:  # fmt: skip
    issuer = Issuer(front)
    write(home / ".docker/config.json", {"auths": {front.address: {"auth": AUTH}}})
    push(tar, name, cache=cache, patience=QUICK)
    method, query, said = issuer.asked[0]
    repository = name.partition("/")[2].rpartition(":")[0]
    assert (method, said) == ("GET", f"Basic {AUTH}")
    assert query == {"service": ["test"], "scope": [f"repository:{repository}:pull,push"]}
    assert all(
        each.headers.get("Authorization", "Bearer").startswith("Bearer")
        for each in front.seen
        if each.path != "/token"
    ), "the password is for the issuer"

    assert len(issuer.asked) == 1, "one does for all"
    issuer.asked.clear()
    issuer.lifetime = 2  # it wears out on the way
    pull(name, output=tmp_path / "out.tar", cache=elsewhere, patience=QUICK)
    assert (tmp_path / "out.tar").read_bytes() == tar.read_bytes()
    assert len(issuer.asked) > 1
    assert issuer.asked[0][1]["scope"] == [f"repository:{repository}:pull"]


def test_an_identity_token_is_exchanged(
    front: Front, name: str, home: Path, tar: Path, cache: BundleCache
) -> None:
    issuer = Issuer(front)
    login = {"auths": {front.address: {"identitytoken": "refresh", **entry("u", "")}}}
    write(home / ".docker/config.json", login)
    push(tar, name, cache=cache, patience=QUICK)
    assert {(method, said) for method, _, said in issuer.asked} == {("POST", "")}


def test_tokens_are_not_asked_for_without_tls_elsewhere(
    front: Front, name: str, home: Path, tar: Path, cache: BundleCache
) -> None:
    Issuer(front, "http://issuer.example/token")
    write(home / ".docker/config.json", {"auths": {front.address: {"auth": AUTH}}})
    with pytest.raises(DistributionError, match=r"leads to issuer\.example without TLS"):
        push(tar, name, cache=cache, patience=QUICK)


@pytest.mark.parametrize("realm", ["", "nonsense", "https://u:p@issuer.example/", "file:///x"])
def test_an_issuer_that_cannot_be_is_refused(
    front: Front, name: str, home: Path, tar: Path, cache: BundleCache, realm: str
) -> None:
    issuer = Issuer(front)
    issuer.realm = realm
    with pytest.raises(DistributionError, match="does not say where tokens"):
        push(tar, name, cache=cache, patience=QUICK)


def test_where_a_registry_keeps_its_blobs_gets_no_login(
    front: Front, registry: str, name: str, home: Path, tar: Path, tmp_path: Path,
    cache: BundleCache, elsewhere: BundleCache,
) -> None:  # fmt: skip
    push(tar, name, cache=cache)
    Issuer(front)
    write(home / ".docker/config.json", {"auths": {front.address: {"auth": AUTH}}})
    with Front(registry) as storage:
        issuer = front.meddle

        def meddle(request: web.Request) -> web.StreamResponse | None:
            answer = issuer(request)
            if answer is None and request.method == "GET" and "/blobs/" in request.path:
                signed = f"http://{storage.address}{request.path}?X-Signature=my-secret"
                return web.Response(status=307, headers={"Location": signed})
            return answer

        front.meddle = meddle
        pull(name, output=tmp_path / "out.tar", cache=elsewhere, patience=QUICK)
        assert (tmp_path / "out.tar").read_bytes() == tar.read_bytes()
        assert len(storage.seen) == 3
        assert not any("Authorization" in each.headers for each in storage.seen)

        storage.meddle = lambda request: web.Response(status=403)
        with pytest.raises(DistributionError) as caught:
            pull(name, output=tmp_path / "no.tar", cache=cache, patience=QUICK)
        assert "my-secret" not in str(caught.value)
        storage.meddle = lambda request: web.Response(status=503)
        with pytest.raises(DistributionError, match="503") as caught:
            pull(name, output=tmp_path / "no.tar", cache=cache, patience=QUICK)
        assert "my-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://storage.example/x?sig=my-secret", "leads to storage.example without TLS"),
        ("ftp://127.0.0.1/x", "without TLS"),
        ("", "nowhere|circles"),
        ("http://[::1", "leads nowhere"),
    ],
)
def test_a_registry_is_not_followed_everywhere(
    front: Front, name: str, tar: Path, tmp_path: Path, cache: BundleCache, location: str,
    problem: str,
) -> None:  # fmt: skip
    push(tar, name, cache=cache)
    front.meddle = lambda request: (
        web.Response(status=302, headers={"Location": location})
        if "/blobs/" in request.path
        else None
    )
    with pytest.raises(DistributionError, match=problem) as caught:
        pull(name, output=tmp_path / "out.tar", cache=cache, patience=QUICK)
    assert "my-secret" not in str(caught.value)
    if location:
        front.meddle = lambda request: (
            web.Response(status=202, headers={"Location": location})
            if request.path.endswith("/uploads/")
            else None
        )
        with pytest.raises(DistributionError, match=problem) as caught:
            push(tar, name.replace("/test/", "/other/"), cache=cache, patience=QUICK)
        assert "my-secret" not in str(caught.value)


def test_what_netrc_has_is_not_sent(
    front: Front, name: str, home: Path, tar: Path, cache: BundleCache
) -> None:
    (home / ".netrc").write_text("machine 127.0.0.1 login me password my-secret\n")
    (home / ".netrc").chmod(0o600)
    push(tar, name, cache=cache)
    assert not any("Authorization" in each.headers for each in front.seen)
