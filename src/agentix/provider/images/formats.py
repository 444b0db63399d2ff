"""The JSON that describes images: what of it matters here, and which of several is meant."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentix.errors import ImageError
from agentix.text import plain

MAX_JSON = 8 * 1024 * 1024
INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
# Also the name of a file that is looked for: it must lead nowhere else.
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
M = TypeVar("M")


class _Model(BaseModel):
    """Foreign JSON: what is unknown is somebody else's business."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RunConfig(_Model):
    """How programs of the image are meant to run. Entrypoint and Cmd are ignored on purpose."""

    user: Annotated[str | None, Field(alias="User")] = None
    env: Annotated[tuple[str, ...] | None, Field(alias="Env")] = None
    working_dir: Annotated[str | None, Field(alias="WorkingDir")] = None


class _Rootfs(_Model):
    type: Literal["layers"] = "layers"
    diff_ids: tuple[Digest, ...] = ()


class ImageDescription(_Model):
    """The configuration of an image, in the form that engines and the OCI share."""

    architecture: str = ""
    os: str = "linux"
    config: RunConfig | None = None
    rootfs: _Rootfs = Field(default_factory=_Rootfs)


class DockerImage(_Model):
    """One image of an archive by ``docker save``."""

    config: Annotated[str, Field(alias="Config")]
    layers: Annotated[tuple[str, ...], Field(alias="Layers")]


class Platform(_Model):
    """What a manifest says that it is for."""

    architecture: str = ""
    os: str = ""
    variant: str = ""


class Descriptor(_Model):
    """A reference to a blob by its digest."""

    digest: Digest
    media_type: Annotated[str, Field(alias="mediaType")] = ""
    platform: Platform | None = None

    @property
    def hex(self) -> str:
        """The digest without its kind."""
        return self.digest.removeprefix("sha256:")


class Index(_Model):
    """Images for several platforms under one name."""

    manifests: tuple[Descriptor, ...]

    def suiting(self, architecture: str, *, image: str) -> list[Descriptor]:
        """Return those for Linux on *architecture*, the plainest first.

        Raises ImageError, in the name of *image*, when there is none.
        """
        found = [
            each
            for each in self.manifests
            if each.platform is None
            or (
                each.platform.architecture in ("", architecture)
                and each.platform.os in ("", "linux")
            )
        ]
        if not found:
            others = ", ".join(
                f"{each.platform.os}/{each.platform.architecture}"
                for each in self.manifests
                if each.platform
            )
            raise ImageError(
                f"image {image} is for {plain(others) or 'nothing'}, not for linux/{architecture}"
            )
        return sorted(found, key=lambda each: bool(each.platform and each.platform.variant))


class Manifest(_Model):
    """One image: its configuration and its layers."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


def parse(kind: type[M], content: bytes, *, image: str, what: str) -> M:
    """Read *content* as *kind*; ImageError, in the name of *image*, when it is something else."""
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ImageError(
            f"image {image} has a {plain(what)} that cannot be read: "
            f"{plain(where)}: {plain(first['msg'])}"
        ) from error
