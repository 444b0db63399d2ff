"""The user's own logins at registries, as docker, podman, skopeo and their helpers keep them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentix.errors import DistributionError
from agentix.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.distribution.place import Place

_LARGEST_FILE = 4 * 1024 * 1024
_HELPER_TAKES = 60.0  # seconds, in which a person may have to unlock something
_HELPER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TOKEN_USER = "<token>"  # noqa: S105 - what helpers call the user of an identity token


@dataclass(frozen=True, slots=True)
class Login:
    """Who somebody is at a registry: a name and a password, or an identity token and no name."""

    user: str
    secret: str = field(repr=False)

    @property
    def is_token(self) -> bool:
        """Whether the secret is an identity token, to be exchanged for others."""
        return not self.user


def find_login(place: Place) -> Login | None:
    """Return the user's login for *place*; None where there is none.

    Looked at are ``$REGISTRY_AUTH_FILE`` alone if that is set, else the files of podman and skopeo
    and then docker's. Raises DistributionError when one of them, or a helper, does not work.
    """
    for file in _files():
        settings = _read(file)
        if settings is not None:
            found = _from(settings, place, file)
            if found is not None:
                return found
    return None


def _files() -> Iterator[Path]:
    if chosen := os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(chosen)
        return
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime, "containers/auth.json")
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and no such user
        home = Path("/")
    yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "containers/auth.json")
    yield Path(os.environ.get("DOCKER_CONFIG") or home / ".docker", "config.json")


def _read(file: Path) -> dict[str, Any] | None:
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DistributionError(f"cannot read the logins in {file}: {error.strerror}") from error
    try:
        found = json.loads(data) if len(data) <= _LARGEST_FILE else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        # Without the cause, which may quote what nobody should see.
        raise DistributionError(
            f"cannot read the logins in {file}: it is not a JSON object; correct it, or log in anew"
        )
    return found


def _from(settings: dict[str, Any], place: Place, file: Path) -> Login | None:
    """Return the login in one file: that of the longest part of the name, or of its helper."""
    helpers, logins = _table(settings, "credHelpers"), _table(settings, "auths")
    if (helper := helpers.get(place.host) or helpers.get(place.login)) is not None:
        return _ask(helper, place, file)
    parts = place.name.split("/")
    for length in range(len(parts), 0, -1):
        login = _login(logins.get("/".join(parts[:length])), file)
        if login is not None:
            return login
    for key, entry in logins.items():
        if _same_host(key, place) and (login := _login(entry, file)) is not None:
            return login
    store = settings.get("credsStore")
    return None if not store else _ask(store, place, file)


def _table(settings: dict[str, Any], key: str) -> dict[str, Any]:
    found = settings.get(key)
    return found if isinstance(found, dict) else {}


def _same_host(key: str, place: Place) -> bool:
    """Tell whether *key*, written as older programs do, means the registry of *place*."""
    bare = key.removeprefix("https://").removeprefix("http://")
    host, _, path = bare.partition("/")
    known = {place.host, place.login.removeprefix("https://").partition("/")[0]}
    return host in known and path.strip("/") in ("", "v1", "v2")


def _login(entry: object, file: Path) -> Login | None:
    if not isinstance(entry, dict):
        return None
    token, auth = entry.get("identitytoken"), entry.get("auth")
    if isinstance(token, str) and token:
        return Login("", token)
    if not isinstance(auth, str) or not auth:
        return None
    try:
        user, colon, secret = b64decode(auth, validate=True).decode().partition(":")
    except (Base64Error, UnicodeDecodeError):
        colon = ""
    if not colon or not user:
        raise DistributionError(f"a login in {file} is damaged; log in to the registry anew")
    return Login(user, secret.rstrip("\0"))


def _ask(helper: object, place: Place, file: Path) -> Login | None:
    """Ask the program that keeps the login; nothing that it prints is shown to anybody."""
    if not isinstance(helper, str) or not _HELPER.fullmatch(helper):
        raise DistributionError(f"{file} names a helper for logins that cannot be one")
    program = f"docker-credential-{helper}"
    try:
        result = subprocess.run(
            [program, "get"],
            input=place.login.encode(),
            capture_output=True,
            timeout=_HELPER_TAKES,
        )
    except FileNotFoundError:
        raise DistributionError(
            f"{file} says that {program} keeps the login for {place.host}, but it is not installed"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        why = "no answer" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise DistributionError(f"cannot ask {program} for the login: {why}") from None
    if result.returncode != 0:
        if b"credentials not found" in (result.stdout + result.stderr)[:4096]:
            return None
        raise DistributionError(
            f"{program} cannot give the login for {place.host} (exit status {result.returncode});"
            f" try it: echo {quoted(place.login)} | {program} get"
        )
    try:
        answer = json.loads(result.stdout)
        user, secret = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DistributionError(f"{program} gave no login but something else") from None
    if not (isinstance(user, str) and isinstance(secret, str) and user):
        raise DistributionError(f"{program} gave no login but something else")
    return Login("" if user == _TOKEN_USER else user, secret)
