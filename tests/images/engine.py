"""Images in the engine on this machine, for as long as a test needs them."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from patience import eventually_async

from images.archives import write_docker_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker import DockerClient

    from images.config import TaskImage


@contextlib.contextmanager
def loaded(client: DockerClient, image: TaskImage) -> Iterator[str]:
    """Load *image* under a name that nobody else uses, and remove that name at the end."""
    tag = f"agentix-test/{image.name}:{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory() as folder:
        archive = write_docker_archive(image, Path(folder, "image.tar"), tag=tag)
        with archive.open("rb") as file:
            client.images.load(file)
    try:
        yield tag
    finally:
        client.images.remove(tag, force=True)


class Leftovers:
    """What sandboxes of this test left in the engine and in *folder*, where their sockets are.

    Others use the engine at the same time, so only containers that mount from *folder* count.
    """

    def __init__(self, client: DockerClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def containers(self) -> list[str]:
        """Return the names of containers of ours, running or not."""
        found = self._client.api.containers(all=True, filters={"label": "agentix.sandbox"})
        ours = (each for each in found if self._is_ours(each["Mounts"]))
        return [each["Names"][0] for each in ours]

    def folders(self) -> list[str]:
        """Return the folders of sandboxes that are still there."""
        return sorted(path.name for path in self._folder.glob("*") if path.is_dir())

    async def appear(self) -> None:
        """Wait until there is a container of ours."""
        await eventually_async(self.containers, "a container appears", within=30)

    def check(self) -> None:
        """Fail when anything is left."""
        assert self.containers() == []
        assert self.folders() == []

    def end(self) -> None:
        """Remove what a failed test left, so that it troubles no other."""
        for name in self.containers():
            self._client.api.remove_container(name, v=True, force=True)

    def _is_ours(self, mounts: list[dict[str, str]]) -> bool:
        return any(mount.get("Source", "").startswith(f"{self._folder}/") for mount in mounts)
