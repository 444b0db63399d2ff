"""Real uv and a real index. What the tests depend on is small, old and will not change."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentix.build.lock import runtime
from agentix.build.lock.inputs import is_current
from agentix.build.lock.locking import lock_project
from agentix.build.lock.uv import find_uv
from agentix.errors import LockError, ProjectError
from agentix.platforms import PLATFORMS

if TYPE_CHECKING:
    from agentix.build.lock import Lock

HATCHLING = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'


def put(folder: Path, *dependencies: str, more: str = "", python: str = ">=3.11") -> Path:
    """Write an ordinary project into *folder*, named like it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{folder.name}.py").write_text("")
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{folder.name}"\nversion = "1.0"\nrequires-python = "{python}"\n'
        f"dependencies = {list(dependencies)!r}\n{more}\n{HATCHLING}"
    )
    return folder


def put_wheel(folder: Path, tag: str, name: str = "native", version: str = "1.0") -> None:
    """Write the wheel of a package that needs nothing, for *tag*."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def uv(folder: Path, *arguments: str) -> None:
    subprocess.run([find_uv(), *arguments], cwd=folder, check=True, capture_output=True)


def versions(lock: Lock, package: str) -> set[str]:
    return {a.version for a in lock.artifacts.values() if a.package == package}


def test_a_project_is_locked_for_both_platforms_and_nothing_is_written(tmp_path: Path) -> None:
    app = put(tmp_path / "app", "idna==3.4", "markupsafe==2.1.5", python=">=3.11,<3.12")
    before = tree(tmp_path)
    lock = lock_project(app)
    assert tree(tmp_path) == before
    assert is_current(lock, app)
    assert (lock.name, lock.version, lock.toolchain, lock.python) == (
        "app",
        "1.0",
        "debian-12",
        "3.11",
    )
    names = [project.name for project in lock.projects]
    assert names[0] == "app"
    assert "agentix-runtime" in [*names, *(a.package for a in lock.artifacts.values())]
    for platform in PLATFORMS.values():
        locked = lock.platforms[platform.name].wheels
        wheels = [wheel for wheel in locked if wheel.startswith("MarkupSafe")]
        assert len(wheels) == 1
        assert f"cp311-cp311-manylinux_2_17_{platform.machine}" in wheels[0]
        assert "idna-3.4-py3-none-any.whl" in locked
        assert any(w.startswith("hatchling-") for w in lock.projects[0].backend[platform.name])
    text = lock.dumps()
    assert "://" not in text
    assert str(tmp_path) not in text


def test_the_same_project_elsewhere_gives_the_same_lock(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two two"):
        put(tmp_path / name / "lib", "attrs==23.1.0")
        sources = '[tool.uv.sources]\nlib = { path = "../lib" }\n'
        app = put(tmp_path / name / "app", "lib", more=sources)
        texts.append(lock_project(app, python="3.11").dumps())
    assert texts[0] == texts[1]


def test_path_and_workspace_dependencies_are_projects_built_by_their_own_backends(
    tmp_path: Path,
) -> None:
    put(tmp_path / "libs" / "core", "attrs==23.1.0")
    legacy = tmp_path / "libs" / "legacy"
    legacy.mkdir()
    (legacy / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='legacy', version='0.3', py_modules=['legacy'])\n"
    )
    (legacy / "legacy.py").write_text("")
    member = put(tmp_path / "apps" / "x" / "packages" / "member", "idna==3.4")
    app = put(
        tmp_path / "apps" / "x",
        *("core", "legacy", "member"),
        more='[tool.uv.workspace]\nmembers = ["packages/*"]\n[tool.uv.sources]\n'
        'core = { path = "../../libs/core", editable = true }\n'
        'legacy = { path = "../../libs/legacy" }\nmember = { workspace = true }\n',
    )
    before = tree(tmp_path)
    lock = lock_project(app)
    assert tree(tmp_path) == before, "setuptools would leave an egg-info"
    found = {p.name: (p.path, p.version) for p in lock.projects if "agentix" not in p.name}
    assert found == {
        "x": (".", "1.0"),
        "core": ("../../libs/core", "1.0"),
        "legacy": ("../../libs/legacy", "0.3"),
        "member": (member.relative_to(app).as_posix(), "1.0"),
    }
    assert versions(lock, "attrs") == {"23.1.0"}
    assert versions(lock, "idna") == {"3.4"}
    backend = next(p.backend["linux/amd64"] for p in lock.projects if p.name == "legacy")
    assert [w.split("-")[0] for w in backend if w.startswith(("setuptools", "wheel"))] == [
        "setuptools",
        "wheel",
    ]


def test_a_version_that_the_backend_decides_is_asked_for(tmp_path: Path) -> None:
    app = put(tmp_path / "app")
    text = (app / "pyproject.toml").read_text().replace('version = "1.0"', 'dynamic = ["version"]')
    (app / "pyproject.toml").write_text(text + '[tool.hatch.version]\npath = "app.py"\n')
    (app / "app.py").write_text('__version__ = "4.5.6"\n')
    before = tree(app)
    lock = lock_project(app)
    assert lock.version == lock.projects[0].version == "4.5.6"
    assert tree(app) == before


def test_a_backend_that_cannot_tell_the_version_says_why(tmp_path: Path) -> None:
    app = put(tmp_path / "app")
    text = (app / "pyproject.toml").read_text().replace('version = "1.0"', 'dynamic = ["version"]')
    (app / "pyproject.toml").write_text(text + '[tool.hatch.version]\npath = "gone.py"\n')
    with pytest.raises(LockError, match=r"cannot tell the version of app.*gone\.py"):
        lock_project(app)


def test_extras_and_groups_stay_out(tmp_path: Path) -> None:
    more = '[project.optional-dependencies]\nx = ["no-such-thing-as-this-one"]\n'
    more += '[dependency-groups]\ndev = ["no-such-thing-as-this-one"]\n'
    app = put(tmp_path / "app", more=more)
    lock = lock_project(app)
    assert not versions(lock, "no-such-thing-as-this-one")


def test_pins_stay_until_an_upgrade_is_asked_for(tmp_path: Path) -> None:
    app = put(tmp_path / "app", "idna==3.4", "attrs==23.1.0")
    lock_project(app).save(app / "bundle.lock")
    put(app, "idna", "attrs", "iniconfig==2.0.0")
    lock = lock_project(app)
    assert (versions(lock, "idna"), versions(lock, "attrs")) == ({"3.4"}, {"23.1.0"})
    one = lock_project(app, upgrade=["idna"])
    assert versions(one, "idna") != {"3.4"}
    assert versions(one, "attrs") == {"23.1.0"}
    everything = lock_project(app, upgrade=True)
    assert versions(everything, "attrs") != {"23.1.0"}


def test_a_locked_python_stays_also_where_the_host_has_another(tmp_path: Path) -> None:
    other = "3.13" if sys.version_info[:2] == (3, 11) else "3.11"
    app = put(tmp_path / "app")
    first = lock_project(app, python=other)
    first.save(app / "bundle.lock")
    again = lock_project(app)
    assert again.python == other
    assert again == first


def test_the_projects_uv_lock_decides_the_versions(tmp_path: Path) -> None:
    app = put(tmp_path / "app", "idna==3.4")
    uv(app, "lock")
    text = (app / "pyproject.toml").read_text().replace("idna==3.4", "idna>=3.4")
    (app / "pyproject.toml").write_text(text)
    uv(app, "lock")
    before = tree(app)
    assert versions(lock_project(app), "idna") == {"3.4"}
    assert tree(app) == before
    (app / "uv.lock").unlink()
    assert versions(lock_project(app), "idna") != {"3.4"}


def test_a_uv_lock_that_is_out_of_date_is_refused(tmp_path: Path) -> None:
    app = put(tmp_path / "app", "idna==3.4")
    uv(app, "lock")
    put(app, "idna==3.6")
    with pytest.raises(LockError, match=r"uv\.lock.*needs to be updated.*run `uv lock`"):
        lock_project(app)


def test_conflicting_extras_do_not_matter(tmp_path: Path) -> None:
    more = '[project.optional-dependencies]\na = ["idna==3.4"]\nb = ["idna==3.6"]\n'
    more += '[tool.uv]\nconflicts = [[{ extra = "a" }, { extra = "b" }]]\n'
    app = put(tmp_path / "app", "attrs==23.1.0", more=more)
    uv(app, "lock")
    assert versions(lock_project(app), "attrs") == {"23.1.0"}


@pytest.mark.parametrize(("extra", "version"), [("old", "1.1.1"), ("new", "2.0.0")])
def test_of_conflicting_extras_the_one_that_is_asked_for_counts(
    tmp_path: Path, extra: str, version: str
) -> None:
    """uv.lock then has both versions, told apart by markers that only uv understands."""
    extras = '[project.optional-dependencies]\nold = ["iniconfig<2"]\nnew = ["iniconfig>=2"]\n'
    put(tmp_path / "app/lib", more=extras)
    app = put(
        tmp_path / "app",
        f"lib[{extra}]",
        more='[tool.uv]\nconflicts = [[{ package = "lib", extra = "old" },'
        ' { package = "lib", extra = "new" }]]\nconstraint-dependencies = ["iniconfig<=2.0.0"]\n'
        '[tool.uv.workspace]\nmembers = ["lib"]\n[tool.uv.sources]\nlib = { workspace = true }\n',
    )
    assert versions(lock_project(app), "iniconfig") == {version}
    uv(app, "lock")
    assert f"extra-3-lib-{extra}" in (app / "uv.lock").read_text()
    assert versions(lock_project(app), "iniconfig") == {version}


def test_wheels_of_a_flat_index_are_locked_and_one_platform_may_be_missing(tmp_path: Path) -> None:
    put_wheel(tmp_path / "wheels", "cp38-abi3-manylinux_2_17_x86_64")
    index = '[[tool.uv.index]]\nname = "local"\nurl = "../wheels"\nformat = "flat"\n'
    app = put(tmp_path / "app", "native", more=index)
    lock = lock_project(app)
    wheel = "native-1.0-cp38-abi3-manylinux_2_17_x86_64.whl"
    assert wheel in lock.platforms["linux/amd64"].wheels
    assert lock.artifacts[wheel].size == (tmp_path / "wheels" / wheel).stat().st_size
    missing = lock.platforms["linux/arm64"].missing
    assert missing is not None
    assert "native 1.0 has no wheel for Python 3." in missing
    assert "cp38-abi3-manylinux_2_17_x86_64" in missing


def test_a_platform_that_uv_is_told_to_leave_out_is_missing(tmp_path: Path) -> None:
    only = "[tool.uv]\nenvironments = [\"platform_machine == 'x86_64'\"]\n"
    lock = lock_project(put(tmp_path / "app", "idna==3.4", more=only))
    assert "idna-3.4-py3-none-any.whl" in lock.platforms["linux/amd64"].wheels
    assert "[tool.uv] environments leaves out" in (lock.platforms["linux/arm64"].missing or "")


def test_a_released_agentix_puts_the_runtime_of_its_own_version_into_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_source_folder", lambda _: None)
    own = importlib.metadata.version("agentix")
    for version in (own, f"{own}.post1"):
        put_wheel(tmp_path / "wheels", "py3-none-any", "agentix_runtime", version)
    app = put(tmp_path / "app", more='[tool.uv]\nfind-links = ["../wheels"]\n')
    lock = lock_project(app)
    assert [project.name for project in lock.projects] == ["app"]
    assert versions(lock, "agentix-runtime") == {own}
    assert is_current(lock, app)


def test_a_dependency_with_a_wheel_nowhere_is_named_with_its_tags(tmp_path: Path) -> None:
    put_wheel(tmp_path / "wheels", "cp311-cp311-win_amd64")
    find_links = '[tool.uv]\nfind-links = ["../wheels"]\n'
    app = put(tmp_path / "app", "native", more=find_links)
    with pytest.raises(LockError, match=r"native 1\.0 has no wheel.*cp311-cp311-win_amd64"):
        lock_project(app)


def test_a_dependency_of_which_uv_lists_no_file_is_named(tmp_path: Path) -> None:
    put_wheel(tmp_path / "wheels", "cp311-cp311-win_amd64")
    find_links = '[tool.uv]\nfind-links = ["../wheels"]\n'
    app = put(tmp_path / "app", "native; sys_platform == 'linux'", more=find_links)
    with pytest.raises(LockError, match=r"native 1\.0 has no wheel for Linux"):
        lock_project(app)


@pytest.mark.parametrize(
    ("dependency", "says"),
    [
        ("no-such-thing-as-this-one", "no-such-thing-as-this-one was not found"),
        ("aiohttp<3.9", "aiohttp"),
        ("x @ git+https://example.invalid/x", "Failed to download and build `x @ git+https"),
        ("idna>>1", "ValueError: Dependency #1 of field `project.dependencies` is invalid"),
    ],
)
def test_what_cannot_be_locked_is_one_line_that_names_it(
    tmp_path: Path, dependency: str, says: str
) -> None:
    app = put(tmp_path / "app", dependency)
    with pytest.raises(LockError) as caught:
        lock_project(app)
    message = str(caught.value)
    assert message.startswith("cannot lock app: ")
    assert says in message
    assert "\n" not in message
    assert "Traceback" not in message
    assert "File " not in message
    assert not (app / "bundle.lock").exists()


@pytest.mark.parametrize("name", ["agentix-runtime", "agentix", "aiohttp"])
def test_a_project_called_like_a_part_of_its_bundle_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(LockError, match=f"cannot lock {name}: .*rename the project"):
        lock_project(put(tmp_path / name))


def test_of_resolutions_that_all_fail_at_once_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", "/proc/nowhere")
    with pytest.raises(LockError, match="/proc/nowhere"):
        lock_project(put(tmp_path / "app"))


def test_a_backend_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    app = put(tmp_path / "app")
    text = (app / "pyproject.toml").read_text().replace('"hatchling"]', '"no-such-backend-here"]')
    (app / "pyproject.toml").write_text(text)
    with pytest.raises(LockError, match=r"build backend \(no-such-backend-here\)"):
        lock_project(app)


def test_no_python_for_the_project_is_said_before_anything_is_resolved(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="no toolchain satisfies"):
        lock_project(put(tmp_path / "app", python=">=3.14"))


def test_system_tools_are_locked_with_their_libraries_and_kept(tmp_path: Path) -> None:
    app = put(tmp_path / "app", more='[tool.agentix]\npython = "3.11"\nsystem = ["jq"]\n')
    lock = lock_project(app)
    for platform in PLATFORMS.values():
        files = lock.platforms[platform.name].system
        assert {lock.artifacts[file].package for file in files} == {"jq", "libjq1", "libonig5"}
        for file in files:
            assert file.endswith(f"_{platform.debian}.deb")
            assert (lock.artifacts[file].pool or "").startswith("pool/main/")
    lock.save(app / "bundle.lock")
    assert lock_project(app) == lock


@pytest.mark.parametrize("name", ["python3", "libc6", "python3.11"])
def test_a_system_tool_that_every_bundle_has_anyway_is_refused(tmp_path: Path, name: str) -> None:
    more = f'[tool.agentix]\npython = "3.11"\nsystem = ["jq", "{name}"]\n'
    with pytest.raises(ProjectError, match=f"'{name}' is already part of every bundle.*remove it"):
        lock_project(put(tmp_path / "app", more=more))


def test_an_unknown_system_tool_is_one_line_with_close_matches(tmp_path: Path) -> None:
    app = put(tmp_path / "app", more='[tool.agentix]\npython = "3.11"\nsystem = ["ripgrap"]\n')
    with pytest.raises(LockError, match=r"'ripgrap' is not a Debian package.*ripgrep"):
        lock_project(app)


def test_a_project_that_says_where_the_runtime_is_gets_that_one(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    clone = shutil.copytree(
        Path(__file__).parents[3] / "runtime", checkout / "runtime", symlinks=True
    )
    edit = (clone / "pyproject.toml").read_text().replace('version = "0.1.0"', 'version = "0.9.9"')
    edit = edit.replace('    "agentix==0.1.0",\n', "").replace("agentix = { workspace = true }", "")
    (clone / "pyproject.toml").write_text(edit)
    app = put(
        tmp_path / "app",
        more='[tool.uv.sources]\nagentix-runtime = { path = "../checkout/runtime" }\n',
    )
    lock = lock_project(app)
    found = {project.name: (project.path, project.version) for project in lock.projects}
    assert found["agentix-runtime"] == ("../checkout/runtime", "0.9.9")
    assert is_current(lock, app)
