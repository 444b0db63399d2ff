"""What the kernel's counters say of a killed worker, as every kind of engine shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix_runtime.server.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
OLD = "29 1 0:32 {root} {point} ro,nosuid - cgroup cgroup rw,memory"
NEW = "30 1 0:29 {root} {point} ro,nosuid - cgroup2 cgroup2 rw,nsdelegate"
OTHER = "28 1 0:30 {root} /elsewhere ro,nosuid - cgroup cgroup rw,cpu,cpuacct"


class Kernel:
    """A /proc and a cgroup folder, of either version."""

    def __init__(
        self, folder: Path, *, old: bool, root: str, path: str, inner: str = "", limit: str
    ) -> None:
        self.proc = folder / "proc"
        self.old = old
        point = folder / "cgroups of mine"
        self.group = point / inner
        self.group.mkdir(parents=True)
        (self.proc / "self").mkdir(parents=True)
        lines = [OTHER, OLD] if old else [NEW]
        spelt = str(point).replace(" ", "\\040")
        (self.proc / "self/mountinfo").write_text(
            "".join(f"{line.format(root=root, point=spelt)}\n" for line in lines)
        )
        groups = (
            f"13:hugetlb:/x\n4:memory:{path}\n2:cpu,cpuacct:/y\n0::/z\n" if old else f"0::{path}\n"
        )
        (self.proc / "self/cgroup").write_text(groups)
        (self.group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(f"{limit}\n")
        self.killed = 0
        self.kill(0)

    def kill(self, times: int = 1) -> None:
        """Count kills as the kernel does."""
        self.killed += times
        name, before = (
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0")
            if self.old
            else ("memory.events", "low 0\nhigh 0\nmax 7\noom 9")
        )
        (self.group / name).write_text(f"{before}\noom_kill {self.killed}\n")


@pytest.mark.parametrize("old", [True, False], ids=["v1", "v2"])
@pytest.mark.parametrize(
    ("root", "path", "inner"),
    [("/docker/1", "/docker/1", ""), ("/", "/", ""), ("/", "/a/b", "a/b"), ("/a", "/a/b c", "b c")],
    ids=["mounted alone", "namespace", "the whole tree", "below"],
)
def test_a_kill_is_noticed_once_and_named_with_the_limit(
    tmp_path: Path, old: bool, root: str, path: str, inner: str
) -> None:
    kernel = Kernel(tmp_path, old=old, root=root, path=path, inner=inner, limit=str(256 * MIB))
    kernel.kill(3)  # before the sandbox was there
    memory = Memory(kernel.proc)
    assert memory.want() == ""
    kernel.kill()
    assert memory.want() == "out of memory, the sandbox's limit is 256 MiB"
    assert memory.want() == ""


@pytest.mark.parametrize(("old", "limit"), [(True, str((1 << 63) - 4096)), (False, "max")])
def test_without_a_limit_the_machine_is_what_has_no_more(
    tmp_path: Path, old: bool, limit: str
) -> None:
    kernel = Kernel(tmp_path, old=old, root="/", path="/", limit=limit)
    memory = Memory(kernel.proc)
    kernel.kill()
    assert memory.want() == "out of memory, the machine has no more"


def test_where_no_counter_can_be_seen_nothing_is_said(tmp_path: Path) -> None:
    assert Memory(tmp_path).want() == ""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/a\n")
    (tmp_path / "self/mountinfo").write_text("20 1 0:5 / /proc rw - proc proc rw\n")
    assert Memory(tmp_path).want() == ""


def test_other_file_systems_may_be_mounted_anywhere_and_called_anything(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, old=False, root="/", path="/", limit="max")
    table = kernel.proc / "self/mountinfo"
    odd = b"40 1 0:40 / /mnt/caf\xe9 rw - tmpfs  rw\n41 1 0:41 / /a\x0cb rw - ext4 /dev/x rw\n"
    table.write_bytes(odd + table.read_bytes())
    memory = Memory(kernel.proc)
    kernel.kill()
    assert memory.want() == "out of memory, the machine has no more"
