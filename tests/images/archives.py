"""Writing an image in the forms people keep images in: tar, docker-archive, OCI layout."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from images.config import TaskImage

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def write_rootfs_tar(image: TaskImage, target: Path) -> Path:
    """Write the root file system alone; every member belongs to root, whoever made the image."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(image.rootfs.rglob("*")):
            name = path.relative_to(image.rootfs).as_posix()
            archive.add(path, name, recursive=False, filter=_belongs_to_root)
    return target


def write_docker_archive(image: TaskImage, target: Path, *, tag: str) -> Path:
    """Write what ``docker save`` would write."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        layer = write_rootfs_tar(image, Path(folder, "layer.tar"))
        digest = _sha256(layer)
        configuration = image.configuration(f"sha256:{digest}")
        config_name = f"{hashlib.sha256(configuration).hexdigest()}.json"
        layer_name = f"{digest}/layer.tar"
        manifest = [{"Config": config_name, "RepoTags": [tag], "Layers": [layer_name]}]
        with tarfile.open(target, "w") as archive:
            _add(archive, config_name, configuration)
            archive.add(layer, layer_name, filter=_belongs_to_root)
            _add(archive, "manifest.json", json.dumps(manifest).encode())
    return target


def write_oci_layout(image: TaskImage, target: Path, *, tag: str) -> Path:
    """Write a tar of an OCI image layout, as ``skopeo copy … oci-archive:`` would."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        layer = write_rootfs_tar(image, Path(folder, "layer.tar"))
        digest = _sha256(layer)
        configuration = image.configuration(f"sha256:{digest}")
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _descriptor(CONFIG, configuration),
                "layers": [
                    {
                        "mediaType": LAYER,
                        "digest": f"sha256:{digest}",
                        "size": layer.stat().st_size,
                    }
                ],
            }
        ).encode()
        entry = _descriptor(MANIFEST, manifest)
        entry["platform"] = {"os": "linux", "architecture": image.architecture}
        entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
        index = {"schemaVersion": 2, "manifests": [entry]}
        with tarfile.open(target, "w") as archive:
            _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
            _add(archive, "index.json", json.dumps(index).encode())
            for blob in (configuration, manifest):
                _add(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
            archive.add(layer, f"blobs/sha256/{digest}", filter=_belongs_to_root)
    return target


def _belongs_to_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 1
    return member


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(_belongs_to_root(member), io.BytesIO(content))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
