"""Where a bundle is at a registry: the host to ask, the repository, and the tag or the digest."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from agentix.errors import DistributionError
from agentix.reference import Reference
from agentix.text import quoted

# Docker's own registry goes by one name, listens at another, and logs people in as a third.
_HUB = "docker.io"
_HUB_LISTENS = "registry-1.docker.io"
_HUB_LOGIN = "https://index.docker.io/v1/"
_LONGEST_TAG = 128


@dataclass(frozen=True, slots=True)
class Place:
    """A name at a registry: *host* as people write it, with its port; *digest* is hex or None."""

    host: str
    repository: str
    tag: str
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place that *text* names; DistributionError when it names none."""
        found = Reference.parse(text)
        if found is None or text.startswith("docker://"):
            raise DistributionError(
                f"{quoted(text)} is no name at a registry; write it as REGISTRY/NAME:TAG or"
                " REGISTRY/NAME@sha256:…, in lower case"
            )
        if not found.host:
            raise DistributionError(
                f"{quoted(text)} does not say which registry; write it as REGISTRY/NAME:TAG, such"
                f" as {_HUB}/{found.name}"
            )
        repository = found.name.removeprefix(f"{found.host}/")
        return cls(found.host, repository, found.tag, found.digest)

    @property
    def listens(self) -> str:
        """The host, with its port, that answers for the registry."""
        return _HUB_LISTENS if self.host == _HUB else self.host

    @property
    def login(self) -> str:
        """What programs that keep logins call the registry."""
        return _HUB_LOGIN if self.host == _HUB else self.host

    @property
    def name(self) -> str:
        """The place without tag and digest."""
        return f"{self.host}/{self.repository}"

    def tag_for(self, platform: str) -> str:
        """Return the tag of the bundle for one *platform*, beside the one that means all.

        Raises DistributionError when it would be too long for one.
        """
        tag = f"{self.tag}-{platform.replace('/', '-')}"
        if len(tag) > _LONGEST_TAG:
            most = _LONGEST_TAG - len(tag) + len(self.tag)
            raise DistributionError(
                f"the tag {quoted(self.tag)} is too long: it may have {most} characters, so that"
                f" {platform} can have a tag of its own"
            )
        return tag

    def __str__(self) -> str:
        return f"{self.name}@sha256:{self.digest}" if self.digest else f"{self.name}:{self.tag}"


def is_loopback(host: str) -> bool:
    """Tell whether *host* (perhaps in brackets, without a port) is this machine itself."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
