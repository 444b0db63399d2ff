"""What distributions declare that they need is read without running or fetching them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from mirror.server import Server, good, serving, whole

from agentix.build.artifact import Artifact
from agentix.build.declared import Declared
from agentix.build.lock import load
from agentix.build.lock.inputs import digest
from agentix.build.lock.plugins import tree_needs
from agentix.build.lock.tools import join
from agentix.build.lock.wheel_needs import wheels_needs
from agentix.build.project import read_project
from agentix.errors import LockError
from agentix.ungrouped import ungrouped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentix.build.lock import Lock

ENTRY = "[agentix.system]\ntools = acme.tools\n"
PROJECT = '[project]\nname = "job"\nversion = "1.0"\nrequires-python = ">=3.11"\n'


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def wheel(folder: Path, files: Mapping[str, str | bytes], name: str = "acme") -> Artifact:
    """Write a wheel whose metadata comes first, so that it is far from the list of files."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Artifact(file=path.name, package=name, version="1.0", sha256=sha256)


def plugin(toml: str, *, entry: str = ENTRY, filler: int = 0) -> dict[str, str | bytes]:
    return {
        "acme-1.0.dist-info/entry_points.txt": entry,
        "acme/tools/agentix.toml": toml,
        "acme/tools/__init__.py": "raise SystemExit('it was imported')",
        "acme/data.bin": os.urandom(filler),
        **{f"acme/many/{n:05}.txt": "" for n in range(filler // 400)},
    }


def needs(
    root: Path, made: Artifact, address: str, previous: Lock | None = None
) -> dict[str, Declared]:
    (root / "pyproject.toml").write_text(PROJECT)
    with ungrouped():
        return asyncio.run(wheels_needs([made], {made.file: address}, root, previous))


def served(server: Server, tmp_path: Path, made: Artifact, *behaviours: object) -> str:
    data = (tmp_path / made.file).read_bytes()
    server.offer(f"/{made.file}", data, *behaviours)  # type: ignore[arg-type]
    return f"{server.address}/{made.file}"


async def parts(request: web.Request, content: bytes) -> web.StreamResponse:
    """Give parts of a file, also those that are counted from its end, as package indices do."""
    asked = request.headers["Range"].removeprefix("bytes=")
    first, last = asked.split("-")
    start = int(first) if first else max(len(content) - int(last), 0)
    stop = int(last) + 1 if first and last else len(content)
    said = f"bytes {start}-{min(stop, len(content)) - 1}/{len(content)}"
    return web.Response(status=206, body=content[start:stop], headers={"Content-Range": said})


async def only_from_the_start(request: web.Request, content: bytes) -> web.StreamResponse:
    """Know no parts that are counted from the end of a file."""
    if request.headers.get("Range", "").startswith("bytes=-"):
        raise web.HTTPRequestRangeNotSatisfiable
    return (
        await parts(request, content) if "Range" in request.headers else web.Response(body=content)
    )


@pytest.mark.parametrize("filler", [0, 400_000])
@pytest.mark.parametrize("behaviour", [parts, whole, good, only_from_the_start])
def test_a_wheel_is_asked_where_it_lies(
    server: Server, tmp_path: Path, filler: int, behaviour: object
) -> None:
    toml = 'system = ["jq"]\nnpm = ["@x/tool@1.0.0"]\nnix = "../more.nix"\n'
    files = plugin(toml.replace("../", ""), filler=filler) | {"acme/tools/more.nix": "{ }: [ ]"}
    made = wheel(tmp_path, files)
    address = served(server, tmp_path, made, behaviour)
    expected = Declared(system=["jq"], npm=["@x/tool@1.0.0"], nix="acme/tools/more.nix")
    assert needs(tmp_path, made, address) == {"acme": expected}
    assert needs(tmp_path, made, (tmp_path / made.file).as_uri()) == {"acme": expected}


def test_of_a_large_wheel_only_little_is_fetched(server: Server, tmp_path: Path) -> None:
    made = wheel(tmp_path, plugin('system = ["jq"]', filler=4_000_000))
    sent = []

    async def counted(request: web.Request, content: bytes) -> web.StreamResponse:
        response = await parts(request, content)
        sent.append(len(response.body))  # type: ignore[attr-defined]
        return response

    needs(tmp_path, made, served(server, tmp_path, made, counted))
    assert len(sent) == 4  # the end, the rest of the list of files, and two files
    assert sum(sent) < 1_000_000 < (tmp_path / made.file).stat().st_size


def test_most_wheels_declare_nothing_and_cost_one_request(server: Server, tmp_path: Path) -> None:
    made = wheel(tmp_path, {"acme/__init__.py": "", "acme-1.0.dist-info/METADATA": ""})
    assert needs(tmp_path, made, served(server, tmp_path, made, parts)) == {}
    assert len(server.requests) == 1


def test_what_a_lock_knows_is_not_asked_again(server: Server, tmp_path: Path) -> None:
    made = wheel(tmp_path, plugin('system = ["jq"]'))
    known = {"acme": Declared(system=["git"])}
    base = load(Path(__file__).parents[3] / "examples/hello-world/bundle.lock")
    previous = base.model_copy(
        update={"plugins": known, "artifacts": {**base.artifacts, made.file: made}}
    )
    address = f"{server.address}/gone.whl"
    assert needs(tmp_path, made, address, previous) == known
    never = previous.model_copy(update={"plugins": None})  # by an Agentix that did not look
    with pytest.raises(LockError, match="the server answered 404"):
        needs(tmp_path, made, address, never)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (plugin("system = 1"), "agentix.toml of the plugin acme cannot be used: system"),
        (plugin('npm = ["tool"]'), r"npm.0: must be a name and one version"),
        (plugin('npm = ["tool@^1.0.0"]'), r"npm.0: must be a name and one version"),
        (plugin("x = ["), "is not valid TOML"),
        (plugin("more = 1"), "more: Extra inputs are not permitted"),
        (plugin('nix = "none.nix"'), "has no acme/tools/none.nix"),
        (plugin('nix = "../x.nix"'), "must lie below"),
        ({"acme-1.0.dist-info/entry_points.txt": ENTRY}, "has no file acme/tools/agentix.toml"),
        (plugin("", entry="[agentix.system]\nx = ../y\n"), "must name a package of it"),
        (plugin("", entry="[agentix.system\n"), "entry points of acme cannot be read"),
    ],
)
def test_what_cannot_be_understood_names_the_plugin(
    tmp_path: Path, files: dict[str, str | bytes], reason: str
) -> None:
    made = wheel(tmp_path, files)
    with pytest.raises(LockError, match=reason) as caught:
        needs(tmp_path, made, (tmp_path / made.file).as_uri())
    assert "acme" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wheel_that_is_none_is_named(server: Server, tmp_path: Path) -> None:
    made = wheel(tmp_path, {})
    for content in (b"", b"no zip file", b"PK\x05\x06" + b"\xff" * 18):
        server.offer("/w.whl", content)
        with pytest.raises(LockError, match=f"cannot read {made.file}") as caught:
            needs(tmp_path, made, f"{server.address}/w.whl")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("first", [5 * 1024**3, 10**30])
def test_a_part_from_nowhere_is_refused(server: Server, tmp_path: Path, first: int) -> None:
    async def lying(request: web.Request, content: bytes) -> web.StreamResponse:
        said = f"bytes {first}-{first + 9}/{first + 10}"
        return web.Response(status=206, body=b"0123456789", headers={"Content-Range": said})

    made = wheel(tmp_path, {})
    with pytest.raises(LockError, match=f"cannot read {made.file}: it is larger than"):
        needs(tmp_path, made, served(server, tmp_path, made, lying))


def test_a_list_of_files_that_would_fill_the_memory_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentix.build.lock.remote_zip._LARGEST_LIST", 1000)
    made = wheel(tmp_path, {f"{n:0100}": "" for n in range(10)})
    with pytest.raises(LockError, match="its list of files has more than 1000 bytes"):
        needs(tmp_path, made, served(server, tmp_path, made, parts))


def test_damage_of_every_kind_of_compression_is_one_line(tmp_path: Path) -> None:
    for kind in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        made = wheel(tmp_path, {})
        file = tmp_path / made.file
        with zipfile.ZipFile(file, "w", kind) as archive:
            archive.writestr("acme-1.0.dist-info/entry_points.txt", ENTRY * 9)
        data = bytearray(file.read_bytes())
        start = 30 + len("acme-1.0.dist-info/entry_points.txt")
        data[start : start + 20] = b"\xff" * 20
        file.write_bytes(data)
        with pytest.raises(LockError, match=f"cannot read {made.file}") as caught:
            needs(tmp_path, made, file.as_uri())
        assert "\n" not in str(caught.value)


def tree(tmp_path: Path, toml: str, value: str = "acme.tools") -> Path:
    root = tmp_path / "plug"
    (root / "src/acme/tools").mkdir(parents=True)
    (root / "pyproject.toml").write_text(
        f'{PROJECT}[project.entry-points."agentix.system"]\ntools = "{value}"\n'
    )
    (root / "src/acme/tools/agentix.toml").write_text(toml)
    return root


def test_a_source_tree_declares_the_same_way(tmp_path: Path) -> None:
    root = tree(tmp_path, 'system = ["jq"]\nnix = "default.nix"', "acme.tools:NEEDS [extra]")
    (root / "src/acme/tools/default.nix").write_text("{ }: [ ]")
    declared = tree_needs("job", read_project(root))
    assert declared == Declared(system=["jq"], nix="acme/tools/default.nix")


def test_a_source_tree_without_the_file_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path, "", "acme.other")
    with pytest.raises(LockError, match=r"the plugin job .* no file acme/other/agentix.toml"):
        tree_needs("job", read_project(root))


def test_a_lock_no_longer_fits_when_a_declaration_changes(tmp_path: Path) -> None:
    root = tree(tmp_path, 'system = ["jq"]')
    before = digest(root, ["."], "debian-12")
    assert digest(root, ["."], "debian-12") == before
    (root / "src/acme/tools/agentix.toml").write_text('system = ["git"]')
    assert digest(root, ["."], "debian-12") != before


def test_what_the_page_shows_is_what_is_understood(tmp_path: Path) -> None:
    here = Path(__file__).parents[2]
    page = (here.parent / "docs/more-tools.md").read_text()
    own, entry, toml = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    root = tree(tmp_path, toml)
    (root / "src/acme/tools/tools.nix").write_text("{ }: [ ]")
    (root / "pyproject.toml").write_text(PROJECT + entry + own)
    (root / "default.nix").write_text("{ }: [ ]")
    project = read_project(root)
    assert len(project.settings.npm) == 2
    expected = ["system jq", "npm which@4.0.0", "nix acme/tools/tools.nix"]
    assert tree_needs("job", project).lines() == expected
    (shown,) = re.findall(r"```nix\n(.*?)```", page, re.DOTALL)
    assert shown == (here / "projects/more-tools/job/default.nix").read_text()


def test_needs_of_all_are_joined_the_projects_own_first() -> None:
    own = Declared(system=["git"], npm=["a@2.0.0"])
    plugins = {
        "two": Declared(system=["jq", "git"], npm=["b@1.0.0"]),
        "one": Declared(system=["curl"], npm=["a@1.0.0", "b@1.0.0"]),
    }
    assert join(own, plugins) == (["git", "curl", "jq"], ["a@2.0.0", "b@1.0.0"])


def test_two_versions_of_one_tool_name_both_plugins() -> None:
    plugins = {"one": Declared(npm=["@x/a@1.0.0"]), "two": Declared(npm=["@x/a@2.0.0"])}
    expected = r"the plugins one and two need @x/a@1.0.0 and @x/a@2.0.0, .*npm = \[\"@x/a@<version>"
    with pytest.raises(LockError, match=expected) as caught:
        join(Declared(), plugins)
    assert "\n" not in str(caught.value)
    decided = join(Declared(npm=["@x/a@3.0.0"]), plugins)
    assert decided == ([], ["@x/a@3.0.0"])


def test_a_project_with_two_versions_of_one_tool_is_refused() -> None:
    with pytest.raises(LockError, match="two versions of one tool"):
        join(Declared(npm=["a@1.0.0", "a@2.0.0"]), {})
