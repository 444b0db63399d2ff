"""The pieces that a root is made of, decided without mounting anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.provider.bubblewrap.layout import Bind, Folder, Link, Overlay, lay_out, mounts

if TYPE_CHECKING:
    from pathlib import Path


def test_a_root_without_mounts_below_is_one_overlay(tmp_path: Path) -> None:
    mounted = {"/": "ext4", "/proc": "proc", str(tmp_path.with_name("beside")): "tmpfs"}
    assert lay_out(tmp_path, mounted, host=False) == [Overlay(str(tmp_path), "/")]


def test_a_folder_with_mounts_below_is_made_anew_around_them(tmp_path: Path) -> None:
    for name in ("usr/bin", "var/lib/engine/deep/mnt", "var/log", "data", "fat", "nix", "sys"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "file").touch()
    (tmp_path / "var").chmod(0o711)
    at = str(tmp_path)
    mounted = {
        "/": "ext4",
        f"{at}/data": "xfs",
        f"{at}/fat": "vfat",
        f"{at}/sys": "sysfs",
        f"{at}/var/lib/engine/deep/mnt": "overlay",
    }
    assert lay_out(tmp_path, mounted, host=False) == [
        Link("usr/bin", "/bin"),
        Overlay(f"{at}/data", "/data"),
        Bind(f"{at}/fat", "/fat"),
        Bind(f"{at}/file", "/file"),
        Overlay(f"{at}/usr", "/usr"),
        Folder("/var", 0o711),
        Folder("/var/lib", 0o755),
        Bind(f"{at}/var/lib/engine", "/var/lib/engine"),
        Overlay(f"{at}/var/log", "/var/log"),
    ]


def test_the_host_keeps_its_sockets_and_temporary_files_to_itself(tmp_path: Path) -> None:
    for name in ("run/secret", "tmp/secret", "usr", "var/lib/docker/secret", "var/lib/dpkg"):
        (tmp_path / name).mkdir(parents=True)
    mounted = {"/": "ext4", f"{tmp_path}/run": "tmpfs"}
    assert lay_out(tmp_path, mounted, host=True) == [
        Folder("/run", 0o755),
        Folder("/tmp", 0o1777),
        Overlay(f"{tmp_path}/usr", "/usr"),
        Folder("/var", 0o755),
        Folder("/var/lib", 0o755),
        Folder("/var/lib/docker", 0o710),
        Overlay(f"{tmp_path}/var/lib/dpkg", "/var/lib/dpkg"),
    ]


def test_the_kernels_table_is_read_with_odd_names(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "23 22 0:5 / /mnt/with\\040space rw - fuse.sshfs host:/ rw\n"
    )
    assert mounts(table) == {"/": "ext4", "/mnt/with space": "fuse.sshfs"}


def test_this_machines_own_table_can_be_read() -> None:
    assert "/" in mounts()
