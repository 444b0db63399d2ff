"""A tool from npm is unpacked safely, relocated, and offers its programs."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from mirror.npm import NODE, manifest, tarball

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping
    from pathlib import Path

LOADER = "ld-linux-x86-64.so.2"
Content = bytes | str | tarfile.TarInfo


@pytest.fixture
def install(
    run_step: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Install packages, each given as the files at its path, with a patchelf that only notes."""
    patchelf = tmp_path / "patchelf/bin/patchelf"
    patchelf.parent.mkdir(parents=True)
    patchelf.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/patched\n')
    patchelf.chmod(0o755)

    def run(
        packages: Mapping[str, Mapping[str, Content] | bytes],
        programs: Mapping[str, str],
        node: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        tarballs = {}
        for number, (path, files) in enumerate(packages.items()):
            file = tmp_path / f"{number}.tgz"
            about = json.dumps(manifest(path.rpartition("node_modules/")[2], license="MIT"))
            content = files if isinstance(files, bytes) else None
            file.write_bytes(content or tarball({"package.json": about, **dict(files)}))  # type: ignore[arg-type]
            tarballs[path] = str(file)
        config: dict[str, Any] = {
            "name": "tool-1.0.0",
            "packages": tarballs,
            "programs": programs,
            "node": node,
            "platform": "linux/amd64",
            "loader": LOADER,
            "toolchain": "/toolchain",
            "patchelf": str(tmp_path / "patchelf"),
        }
        return run_step("npm.py", config, tmp_path / "out")

    return run


def patched(tmp_path: Path) -> list[str]:
    file = tmp_path / "patched"
    return file.read_text().replace(f"{tmp_path}/out/", "").splitlines() if file.exists() else []


def test_a_native_program_is_relocated_and_offered(
    install: Callable[..., Any], make_elf: Callable[..., bytes], tmp_path: Path
) -> None:
    ours = f"/lib64/{LOADER}"
    done = install(
        {
            "node_modules/tool": {"bin/tool": "a note"},
            "node_modules/@x/native": {
                "bin/tool": make_elf(interpreter=ours, needed=("libc.so.6",), runpath="/usr/lib"),
                "lib/own.so": make_elf(needed=("libc.so.6",), rpath="$ORIGIN/../dep:/opt"),
                "static": make_elf(),
                "prebuilt/arm64.node": make_elf(needed=("libc.so.6",), machine=183),
                "prebuilt/musl.node": make_elf(needed=("libc.musl-x86_64.so.1",)),
                "prebuilt/musl": make_elf(interpreter="/lib/ld-musl-x86_64.so.1"),
                "damaged": b"\x7fELF\x02\x01",
            },
        },
        {"tool": "node_modules/@x/native/bin/tool"},
    )
    assert done.returncode == 0, done.stderr
    native = "lib/node_modules/@x/native"
    rpath = "--force-rpath --set-rpath"
    assert patched(tmp_path) == [
        f"{rpath} /toolchain/lib --set-interpreter /toolchain/lib/{LOADER} {native}/bin/tool",
        f"{rpath} $ORIGIN/../dep:/toolchain/lib {native}/lib/own.so",
    ]
    link = tmp_path / "out/bin/tool"
    assert str(link.readlink()) == f"../{native}/bin/tool"
    assert link.stat().st_mode & 0o777 == 0o755
    licences = json.loads((tmp_path / "out/licences.json").read_text())
    assert licences == {"tool": ["MIT"], "@x/native": ["MIT"]}


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("#!/usr/bin/env node\n", "#!/node/bin/node\n"),
        ("#! /usr/bin/env -S node --no-warnings\r\n", "#!/node/bin/node --no-warnings\n"),
        ("#!/usr/bin/node\n", "#!/node/bin/node\n"),
        ("#!/usr/bin/env nodemon\n", "#!/usr/bin/env nodemon\n"),
        ("#!/bin/sh\n", "#!/bin/sh\n"),
        ("#!/usr/bin/env -S A=1 B=x=y node\n", "#!/node/bin/node\n"),
        # Which sign separates name and value must not be tried in every way.
        ("#!/usr/bin/env " + "a====== " * 60 + "\n", "#!/usr/bin/env " + "a====== " * 60 + "\n"),
    ],
)
def test_what_node_runs_is_run_by_the_bundles_node(
    install: Callable[..., Any], tmp_path: Path, first: str, expected: str
) -> None:
    files = {"cli.js": f"{first}rest\r\n", "helper!": f"{first}rest\n"}
    done = install({"node_modules/tool": files}, {"tool": "node_modules/tool/cli.js"}, "/node")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out/lib/node_modules/tool"
    assert (folder / "cli.js").read_bytes().decode() == f"{expected}rest\r\n"
    assert (folder / "helper").read_text() == f"{expected}rest\n"
    assert (folder / "cli.js").stat().st_mode & 0o777 == 0o755


def test_packages_lie_where_node_looks_for_them(
    install: Callable[..., Any], tmp_path: Path
) -> None:
    inner = "node_modules/tool/node_modules/b"
    done = install(
        {
            inner: {"index.js": "inner"},
            "node_modules/b": tarball(
                {"package.json": '{"name": "b"}', "index.js": "outer"}, "any"
            ),
            "node_modules/tool": {"cli.js": NODE, "node_modules/c/index.js": "brought along"},
        },
        {"tool": "node_modules/tool/cli.js"},
    )
    assert done.returncode == 0, done.stderr
    lib = tmp_path / "out/lib"
    assert (lib / inner / "index.js").read_text() == "inner"
    assert (lib / "node_modules/b/index.js").read_text() == "outer"
    assert (lib / "node_modules/tool/node_modules/c/index.js").read_text() == "brought along"


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "name", ["package/../../../evil", "/evil/x", "../evil", "package/a/../../b"]
)
def test_a_member_that_leads_out_is_refused(
    install: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    done = install({"node_modules/tool": {"x": member(name)}}, {})
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith("the tarball of tool cannot be used: its member")
    assert name in last
    assert not list(tmp_path.rglob("evil"))


def test_links_and_devices_are_left_out_and_nothing_is_written_through_them(
    install: Callable[..., Any], tmp_path: Path
) -> None:
    files: dict[str, Content] = {
        "1": member("package/link", tarfile.SYMTYPE, str(tmp_path)),
        "2": member("package/hard", tarfile.LNKTYPE, "/etc/passwd"),
        "3": member("package/pipe", tarfile.FIFOTYPE),
        "link/evil": "x",
        "cli.js": NODE,
    }
    done = install({"node_modules/tool": files}, {"tool": "node_modules/tool/cli.js"})
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out/lib/node_modules/tool"
    assert sorted(p.name for p in folder.iterdir()) == ["cli.js", "link", "package.json"]
    assert not (tmp_path / "evil").exists()
    assert not (folder / "link").is_symlink()


def test_the_last_of_two_members_counts_and_modes_are_plain(
    install: Callable[..., Any], tmp_path: Path
) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for content, mode in ((b"{}", 0o444), (b'{"name": "tool"}', 0o6777)):
            made = member("package/package.json")
            made.size, made.mode = len(content), mode
            archive.addfile(made, io.BytesIO(content))
    done = install({"node_modules/tool": gzip.compress(out.getvalue())}, {})
    assert done.returncode == 0, done.stderr
    file = tmp_path / "out/lib/node_modules/tool/package.json"
    assert file.read_text() == '{"name": "tool"}'
    assert file.stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no tarball", "the tarball of tool cannot be used"),
        (tarball({"package.json": "{}"})[:40], "the tarball of tool cannot be used"),
        (tarball({"cli.js": NODE}), "the tarball of tool cannot be used: its package.json"),
        (tarball({"package.json": "{}", "a": "", "a/b": ""}), "the tarball of tool cannot be used"),
    ],
)
def test_a_tarball_that_is_none_is_named(
    install: Callable[..., Any], content: bytes, reason: str
) -> None:
    done = install({"node_modules/tool": content}, {})
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith(reason), done.stderr


def test_a_program_for_another_c_library_is_refused(
    install: Callable[..., Any], make_elf: Callable[..., bytes]
) -> None:
    musl = make_elf(interpreter="/lib/ld-musl-x86_64.so.1")
    done = install({"node_modules/tool": {"tool": musl}}, {"tool": "node_modules/tool/tool"})
    assert "is linked with /lib/ld-musl-x86_64.so.1" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("node_modules/tool/missing", "has no file node_modules/tool/missing"),
        ("../../x", "leads out of the tool"),
        ("/etc/passwd", "leads out of the tool"),
    ],
)
def test_a_program_that_is_not_there_is_named(
    install: Callable[..., Any], path: str, reason: str
) -> None:
    done = install({"node_modules/tool": {"cli.js": NODE}}, {"tool": path})
    assert done.returncode != 0
    assert reason in done.stderr.splitlines()[-1]
