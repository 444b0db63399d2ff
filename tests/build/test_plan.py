"""What a build decides before it does anything: its request, its needs, its plan, its memory."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from agentix.build import record
from agentix.build.artifact import Artifact
from agentix.build.built import BuiltBundle
from agentix.build.fetch import needs, total_size
from agentix.build.lock import Lock, LockedProject, Target
from agentix.build.plan import make_plan
from agentix.build.record import Inputs, recall, remember
from agentix.build.request import Request
from agentix.build.toolchain import seeds, toolchains
from agentix.errors import LockError, ProjectError

ONE, TWO = "one-1.0-py3-none-any.whl", "two-2.0-py3-none-any.whl"
BACKEND = "hatchling-1.27.0-py3-none-any.whl"
DEB, OTHER_DEB = "jq_1.6_amd64.deb", "jq_1.6_arm64.deb"


def artifact(file: str, number: int, pool: str | None = None) -> Artifact:
    sha256 = f"{number:064x}"
    package = "jq" if pool else "p"
    return Artifact(file=file, package=package, version="1", sha256=sha256, size=number, pool=pool)


def lock(**changes: object) -> Lock:
    fields: dict[str, object] = {
        "name": "hello",
        "version": "1.0",
        "inputs": "0" * 64,
        "toolchain": "debian-12",
        "python": "3.11",
        "projects": (
            LockedProject(
                name="hello",
                version="1.0",
                path=".",
                backend={"linux/amd64": (BACKEND,), "linux/arm64": (BACKEND,)},
            ),
        ),
        "system": ("jq",),
        "platforms": {
            "linux/amd64": Target(wheels=(ONE,), system=(DEB,)),
            "linux/arm64": Target(wheels=(TWO,), system=(OTHER_DEB,)),
        },
        "artifacts": {
            ONE: artifact(ONE, 1),
            TWO: artifact(TWO, 2),
            BACKEND: artifact(BACKEND, 3),
            DEB: artifact(DEB, 4, "pool/jq"),
            OTHER_DEB: artifact(OTHER_DEB, 5, "pool/jq"),
        },
    }
    return Lock(**(fields | changes))  # type: ignore[arg-type]


# Needs


def test_a_build_needs_its_wheels_tools_backends_toolchain_and_seeds() -> None:
    found = needs(lock(), "linux/amd64", "linux/amd64")
    names = {file.file for file in found.files}
    assert {ONE, DEB, BACKEND} <= names
    assert TWO not in names
    assert {pin.file for pin in toolchains()["debian-12"].packages["linux/amd64"]} <= names
    assert {pin.file for pin in seeds().wheels} <= names
    assert {program.store for program in found.programs} == set(seeds().programs["linux/amd64"])
    assert len(names) == len(found.files)
    assert total_size(found.files) > 1_000_000


def test_a_build_for_another_platform_needs_tools_for_both() -> None:
    found = needs(lock(), "linux/arm64", "linux/amd64")
    files = {file.file for file in found.files}
    assert {TWO, BACKEND} <= files
    assert ONE not in files
    for platform in ("linux/amd64", "linux/arm64"):
        assert {pin.file for pin in toolchains()["debian-12"].packages[platform]} <= files
    assert len(found.programs) == 2 * len(seeds().programs["linux/amd64"])


def test_what_cannot_be_built_says_why() -> None:
    no = Target(wheels=(), missing="torch has no wheel for it")
    with pytest.raises(
        LockError, match=r"hello cannot be built for linux/arm64: torch has no wheel"
    ):
        needs(lock(platforms={"linux/arm64": no}), "linux/arm64", "linux/amd64")
    with pytest.raises(LockError, match="hello is not locked for linux/arm64; run `agentix lock`"):
        needs(lock(platforms={"linux/amd64": no}), "linux/arm64", "linux/amd64")
    with pytest.raises(LockError, match=r"toolchain 'debian-99'.*has debian-12, debian-13"):
        needs(lock(toolchain="debian-99"), "linux/amd64", "linux/amd64")
    stuck = LockedProject(
        name="hello", version="1.0", path=".", backend={}, missing={"linux/amd64": "no cython"}
    )
    with pytest.raises(LockError, match="hello cannot be built on linux/amd64: no cython"):
        needs(lock(projects=(stuck,)), "linux/amd64", "linux/amd64")


# Requests


@pytest.mark.parametrize(
    "name", ["../../victim", "/abs", "a/b:c", "", ".", "..", "a b", "-x", "a--b", "a\n", "a" * 129]
)
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProjectError, match="a bundle cannot be called"):
        Request.of(tmp_path, name=name)


def test_an_unknown_platform_is_refused_with_the_choice(tmp_path: Path) -> None:
    with pytest.raises(
        ProjectError, match=r"'windows' is not supported; choose one of linux/amd64"
    ):
        Request.of(tmp_path, platform="windows")


def test_the_tar_goes_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "folder.tar").mkdir()
    name = "hello-1.0-linux-arm64.bundle.tar"

    def where(output: str | None) -> Path:
        request = Request.of(
            Path(), output=Path(output) if output else None, platform="linux/arm64"
        )
        return request.destination("hello", "1.0")

    assert where(None) == tmp_path / "dist" / name
    assert where("there") == tmp_path / "there" / name
    assert where("not/yet") == tmp_path / "not/yet" / name
    assert where("folder.tar") == tmp_path / "folder.tar" / name
    assert where("x.tar") == tmp_path / "x.tar"
    assert where("/other/x.bundle.tar") == Path("/other/x.bundle.tar")


# Plans


def project(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "hello"\nversion = "1.0"\n')
    (folder / "hello.py").write_text("x = 1\n")
    return folder


def test_the_plan_is_what_nix_reads(tmp_path: Path) -> None:
    root = project(tmp_path / "with space ü")
    plan = make_plan(lock(), Request.of(root, platform="linux/amd64", name="other"))
    assert json.loads(plan.dumps()) == {
        "lock": str(root / "bundle.lock"),
        "platform": "linux/amd64",
        "name": "other",
        "sources": {"hello": {"root": str(root), "files": ["hello.py", "pyproject.toml"]}},
    }
    assert plan.output == root / "dist/other-1.0-linux-amd64.bundle.tar"


def test_the_tar_is_no_source_of_itself(tmp_path: Path) -> None:
    root = project(tmp_path)
    (root / "mine.tar").write_text("a bundle")
    (root / "data.tar").write_text("data")
    plan = make_plan(lock(), Request.of(root, output=root / "mine.tar"))
    assert plan.sources["hello"].files == ("data.tar", "hello.py", "pyproject.toml")


# Memory


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Request, BuiltBundle, Path]:
    """A request whose build is on record, and its project."""
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    root = project(tmp_path / "project")
    inner = project(root / "inner")
    (root / "bundle.lock").write_text("{}")
    (root / "link").symlink_to("hello.py")
    output, store_path = tmp_path / "x.tar", tmp_path / "store"
    output.write_text("a bundle")
    store_path.mkdir()
    request = Request.of(root, output=output)
    bundle = BuiltBundle(output, "0" * 64, 8, "hello", "1.0", "linux/amd64", store_path)
    trees = ((str(root), (str(inner),)), (str(inner), (str(root),)))
    files = (str(root / "bundle.lock"), str(root / "uv.lock"))
    inputs = Inputs(trees, files, str(output))
    remember(request, inputs, inputs.digest(), bundle)
    return request, bundle, root


Known = tuple[Request, BuiltBundle, Path]


def test_a_bundle_that_is_gone_again_is_not_noted(known: Known, tmp_path: Path) -> None:
    request, bundle, root = known
    other = replace(request, output=str(tmp_path / "gone.tar"))
    inputs = Inputs(((str(root), ()),), (), "")
    remember(other, inputs, inputs.digest(), replace(bundle, path=tmp_path / "gone.tar"))
    assert recall(other) is None
    assert recall(request) is not None


def test_what_has_not_changed_is_recalled(known: Known) -> None:
    request, bundle, root = known
    assert recall(request) == replace(bundle, cached=True)
    os.utime(root / "hello.py", (1, 1))
    (root / "hello.py").chmod(0o600)  # not what git or Nix would see
    (root / "dist").mkdir()
    (root / "dist/other.tar").write_text("an output")
    assert recall(request) is not None


def edit(root: Path) -> None:
    status = (root / "hello.py").stat()
    (root / "hello.py").write_text("x = 2\n")  # as long as before, and as old
    os.utime(root / "hello.py", ns=(status.st_atime_ns, status.st_mtime_ns))


def swap(root: Path) -> None:
    (root / "hello.py").rename(root / "other.py")


@pytest.mark.parametrize(
    "change",
    [
        edit,
        swap,
        lambda root: (root / "inner/hello.py").write_text("x = 2\n"),
        lambda root: (root / "new.py").write_text(""),
        lambda root: (root / "hello.py").unlink(),
        lambda root: (root / "hello.py").chmod(0o755),
        lambda root: (root / "bundle.lock").write_text("{ }"),
        lambda root: (root / "uv.lock").write_text(""),
        lambda root: ((root / "link").unlink(), (root / "link").symlink_to("pyproject.toml")),
        lambda root: ((root / "link").unlink(), (root / "link").write_text("x = 1\n")),
        lambda root: (root.parent / "x.tar").unlink(),
        lambda root: (root.parent / "x.tar").write_text("a bandit"),
        lambda root: (root.parent / "store").rmdir(),
    ],
    ids=[
        "edited",
        "renamed",
        "inner edited",
        "added",
        "removed",
        "executable",
        "lock",
        "uv.lock",
        "link",
        "link to file",
        "tar removed",
        "tar overwritten",
        "store path removed",
    ],
)
def test_any_change_is_seen(known: Known, change: object) -> None:
    request, _, root = known
    change(root)  # type: ignore[operator]
    assert recall(request) is None


def test_a_tar_that_was_replaced_by_one_as_large_and_as_old_is_seen(known: Known) -> None:
    request, bundle, _ = known
    status = bundle.path.stat()
    other = bundle.path.with_name("other")
    other.write_text("a bandit")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(bundle.path)
    assert recall(request) is None


def test_another_request_is_another_matter(known: Known) -> None:
    request, _, _ = known
    assert recall(replace(request, platform="linux/arm64")) is None
    assert recall(replace(request, python="3.13")) is None
    assert recall(replace(request, name="other")) is None


def test_a_new_version_of_the_builder_builds_anew(
    known: Known, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    request, _, _ = known
    monkeypatch.setattr(record, "expressions", lambda: tmp_path / "other-expressions")
    (tmp_path / "other-expressions").mkdir()
    (tmp_path / "other-expressions/build.nix").write_text("")
    assert recall(request) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"trees": 1}', "\x00", '{"trees": [["/x", []]]}']
)
def test_a_damaged_record_is_no_record(known: Known, text: str) -> None:
    request, _, _ = known
    [file] = Path(os.environ["AGENTIX_CACHE_DIR"], "builds").iterdir()
    file.write_text(text)
    assert recall(request) is None


def test_a_cache_that_cannot_be_written_only_costs_time(
    known: Known, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    request, bundle, _ = known
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "file"))
    inputs = Inputs((), (), str(bundle.path))
    remember(request, inputs, inputs.digest(), bundle)
    assert recall(request) is None
