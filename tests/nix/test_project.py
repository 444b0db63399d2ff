from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping

# A backend inside the project writes a wheel of what it saw.
BACKEND = """
import json, os, pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    seen = {
        "files": {
            str(path): [int(path.lstat().st_mtime), os.access(path, os.W_OK)]
            for path in sorted(pathlib.Path().rglob("*")) if "__pycache__" not in path.parts
        },
        "environment": dict(os.environ),
        "stdin": os.read(0, 1).decode(),
    }
    name = "NAME"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as archive:
        archive.writestr("seen.json", json.dumps(seen))
        archive.writestr("leak.txt", LEAK)
    return name
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
PURE = "a-1.0-py3-none-any.whl"


@pytest.fixture
def build(
    tmp_path: Path, run_step: Callable[..., Any], helpers: dict[str, str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Build a project of the given files; its wheel is in tmp_path/out."""
    backend = tmp_path / "environment"
    (backend / "bin").mkdir(parents=True)
    (backend / "bin/python").symlink_to(sys.executable)

    def run(
        files: Mapping[str, str], *, native: bool = True, inner: str = ".", packed: str = ""
    ) -> subprocess.CompletedProcess[str]:
        source = tmp_path / "source"
        for name, content in files.items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            path.chmod(0o444)
        if packed:
            source = Path(shutil.make_archive(str(tmp_path / "packed"), packed, source))
        config = {
            "name": "some.Project",
            "version": "1.2.3",
            "source": str(source),
            "backend": str(backend),
            "compiler": None,
            "hooks": helpers["hooks"],
            "native": native,
            "path": inner,
            "platform": "linux/arm64",
        }
        result: subprocess.CompletedProcess[str] = run_step("project.py", config, tmp_path / "out")
        return result

    return run


def backend(*, name: str = PURE, leak: str = "'nothing'") -> str:
    return BACKEND.replace("NAME", name).replace("LEAK", leak)


def test_a_backend_sees_a_writable_tree_of_1980(tmp_path: Path, build: Callable[..., Any]) -> None:
    done = build(
        {"pyproject.toml": PYPROJECT, "backend.py": backend(leak="''"), "pkg/data.txt": "x"}
    )
    # What it saw names the place of the build, which no wheel may do; it is on the log anyway.
    assert done.returncode == 1
    assert done.stderr == (
        "seen.json of the project some.Project contains the path it was built in\n"
    )


def test_the_wheel_is_the_only_result(tmp_path: Path, build: Callable[..., Any]) -> None:
    quiet = backend().replace("json.dumps(seen)", 'json.dumps([seen["files"], seen["stdin"]])')
    done = build({"pyproject.toml": PYPROJECT, "backend.py": quiet, "pkg/data.txt": "x"})
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == [PURE]
    with zipfile.ZipFile(tmp_path / "out" / PURE) as archive:
        text = archive.read("seen.json").decode()
    year_1980 = "[315532800, true]"
    names = ("backend.py", "pkg", "pkg/data.txt", "pyproject.toml")
    files = ", ".join(f'"{name}": {year_1980}' for name in names)
    assert text == f'[{{{files}}}, ""]'


def test_a_backend_gets_a_known_environment(tmp_path: Path, build: Callable[..., Any]) -> None:
    shown = backend().replace(
        "json.dumps(seen)",
        'json.dumps({k: v for k, v in seen["environment"].items() if "workshop" not in v})',
    )
    done = build({"pyproject.toml": PYPROJECT, "backend.py": shown})
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "out" / PURE) as archive:
        text = archive.read("seen.json").decode()
    for expected in (
        '"PYTHONHASHSEED": "0"',
        '"SOURCE_DATE_EPOCH": "315532800"',
        '"LC_ALL": "C.UTF-8"',
        '"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_SOME_PROJECT": "1.2.3"',
        '"PDM_BUILD_SCM_VERSION": "1.2.3"',
        '"POETRY_DYNAMIC_VERSIONING_BYPASS": "1.2.3"',
        '"UV_DYNAMIC_VERSIONING_BYPASS": "1.2.3"',
    ):
        assert expected in text
    assert "HTTP" not in text


def test_a_wheel_that_names_its_build_folder_is_refused(build: Callable[..., Any]) -> None:
    leaking = backend(leak="os.getcwd()").replace("json.dumps(seen)", "''")
    done = build({"pyproject.toml": PYPROJECT, "backend.py": leaking})
    assert done.returncode == 1
    assert done.stderr == "leak.txt of the project some.Project contains the path it was built in\n"


@pytest.mark.parametrize(
    ("project", "built", "refused"),
    [
        ('name = "a"\ndynamic = ["version"]', "0+unknown", True),
        ('name = "a"\ndynamic = ["version"]', "1.2.3", False),
        ('name = "a"\nversion = "1.2.3.0"', "1.2.3.0", False),
        (None, "0.0.0", True),
    ],
)
def test_a_version_that_is_not_the_locked_one_is_refused(
    build: Callable[..., Any], project: str | None, built: str, refused: bool
) -> None:
    add = f"archive.writestr('a-1.dist-info/METADATA', 'Name: a\\nVersion: {built}\\n\\nText')"
    code = backend().replace('archive.writestr("leak.txt"', f'{add}; archive.writestr("leak.txt"')
    table = f"[project]\n{project}\n" if project else ""
    code = code.replace("json.dumps(seen)", "''")
    done = build({"pyproject.toml": table + PYPROJECT, "backend.py": code})
    assert done.returncode == refused, done.stderr
    if refused:
        assert done.stderr == (
            f"the project some.Project builds as version {built}, but its lock says 1.2.3; run "
            "'agentix lock', or, if its backend asks Git, which no build can, set a fixed version\n"
        )


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("x.c:1:10: fatal error: libpq-fe.h: No such file or directory", "libpq-fe.h"),
        ("/x/bin/ld: cannot find -lyaml: No such file or directory", "yaml"),
        ("Error: pg_config executable not found.", "pg_config"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'pkg-config'", "pkg-config"),
    ],
)
def test_what_a_compiler_lacks_is_told_with_what_to_do(
    build: Callable[..., Any], said: str, what: str
) -> None:
    code = f"import sys\ndef build_wheel(*_):\n print({said!r})\n print('more')\n sys.exit(1)\n"
    done = build({"pyproject.toml": PYPROJECT, "backend.py": code})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"the build backend backend of the project some.Project failed, for lack of {what}; add "
        "the Debian package that has it to [tool.agentix] build, or choose a version that has a "
        "wheel"
    )
    assert said in done.stdout


def test_what_a_backend_leaves_running_is_not_waited_for(
    tmp_path: Path, build: Callable[..., Any]
) -> None:
    start = f"""
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(tmp_path / "left")!r}, "w").write(str(left.pid))
"""
    leaving = start + backend().replace("json.dumps(seen)", "''")
    try:
        done = build({"pyproject.toml": PYPROJECT, "backend.py": leaving})
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
    assert done.returncode == 0, done.stderr


def test_a_failing_backend_has_the_last_word(build: Callable[..., Any]) -> None:
    code = "def build_wheel(*a, **k):\n    print('first')\n    raise ValueError('no such luck')\n"
    done = build({"pyproject.toml": PYPROJECT, "backend.py": code})
    assert done.returncode == 1
    first, *_, error = done.stdout.splitlines()
    assert (first, error) == ("first", "ValueError: no such luck")
    assert done.stderr == (
        "the build backend backend of the project some.Project failed; its last lines are above\n"
    )


@pytest.mark.parametrize(
    ("pyproject", "sentence"),
    [
        (
            '[build-system]\nrequires = []\nbuild-backend = "nowhere.api"\n',
            "the build backend nowhere.api of the project some.Project cannot be imported: "
            "ModuleNotFoundError: No module named 'nowhere'; is it in build-system.requires?",
        ),
        (
            '[build-system]\nrequires = []\nbuild-backend = "json"\n',
            "the build backend json of the project some.Project failed; its last lines are above",
        ),
        ("[build-system", "pyproject.toml of the project some.Project cannot be read: "),
    ],
)
def test_a_backend_that_is_none_is_one_sentence(
    build: Callable[..., Any], pyproject: str, sentence: str
) -> None:
    done = build({"pyproject.toml": pyproject})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(sentence)


def test_without_a_backend_it_is_the_traditional_one(builders: Any, tmp_path: Path) -> None:
    legacy = ("setuptools.build_meta:__legacy__", None)
    assert builders.project.declared("a", tmp_path) == legacy
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools", "x"]\n')
    assert builders.project.declared("a", tmp_path) == legacy


def test_only_a_pure_wheel_serves_another_platform(build: Callable[..., Any]) -> None:
    name = "a-1.0-cp311-cp311-linux_x86_64.whl"
    quiet = backend(name=name).replace("json.dumps(seen)", "''")
    done = build({"pyproject.toml": PYPROJECT, "backend.py": quiet}, native=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"the project some.Project builds a wheel for this machine only ({name}); "
        "for linux/arm64, build it on such a machine\n"
    )


@pytest.mark.parametrize("packed", ["gztar", "bztar", "xztar", "zip"])
@pytest.mark.parametrize("top", ["a-1.0/", ""])
def test_a_source_archive_is_built_as_what_is_in_it(
    tmp_path: Path, build: Callable[..., Any], packed: str, top: str
) -> None:
    quiet = backend().replace("json.dumps(seen)", 'json.dumps([seen["files"], seen["stdin"]])')
    files = {
        f"{top}libs/a/pyproject.toml": PYPROJECT,
        f"{top}libs/a/backend.py": quiet,
        f"{top}README": "",
    }
    if not top:
        files["pyproject.toml"] = "not that of the project"
    done = build(files, inner="libs/a", packed=packed)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "out" / PURE) as archive:
        text = archive.read("seen.json").decode()
    found = '"backend.py": [315532800, true], "pyproject.toml": [315532800, true]'
    assert text == f'[{{{found}}}, ""]'


def test_a_damaged_source_archive_is_one_sentence(
    tmp_path: Path, build: Callable[..., Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "make_archive", lambda *_: str(tmp_path / "packed.tar.gz"))
        (tmp_path / "packed.tar.gz").write_bytes(b"no archive")
        done = build({}, packed="gztar")
    assert done.returncode == 1
    sentence = "the source archive of the project some.Project cannot be unpacked: "
    assert done.stderr.splitlines()[-1].startswith(sentence)
    assert len(done.stderr.splitlines()) == 1


COMPILER = {
    "tools": "/tools",
    "toolchain": "/toolchain",
    "multiarch": "aarch64-linux-gnu",
    "python": "3.11",
}


def test_a_backend_finds_the_compiler_and_tells_nobody_where_it_was(
    builders: Any, tmp_path: Path
) -> None:
    assert builders.project.compile_with(COMPILER, tmp_path) == {
        "CC": "aarch64-linux-gnu-gcc",
        "CXX": "aarch64-linux-gnu-g++",
        "CFLAGS": f"-g0 -ffile-prefix-map={tmp_path}=.",
        "CXXFLAGS": f"-g0 -ffile-prefix-map={tmp_path}=.",
        "CPATH": "/tools/root/include/python3.11:/tools/root/include",
        "PKG_CONFIG_LIBDIR": (
            "/tools/root/lib/aarch64-linux-gnu/pkgconfig:/tools/root/share/pkgconfig"
        ),
        "PKG_CONFIG_SYSROOT_DIR": "/tools/root",
    }


def test_python_is_told_of_another_platform_by_that_platforms_own_module(
    builders: Any, tmp_path: Path
) -> None:
    name = "_sysconfigdata__aarch64-linux-gnu"
    library = tmp_path / "toolchain/lib/python3.11"
    library.mkdir(parents=True)
    (library / f"{name}.py").write_text("build_time_vars = {}\n")
    compiler = COMPILER | {"toolchain": str(tmp_path / "toolchain")}
    assert builders.project.compile_for(compiler, tmp_path) == {
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "_PYTHON_SYSCONFIGDATA_NAME": name,
        "PYTHONPATH": str(tmp_path / "sysconfig"),
    }
    assert [path.name for path in (tmp_path / "sysconfig").iterdir()] == [f"{name}.py"]


@pytest.mark.parametrize(
    ("name", "compiler", "fits"),
    [
        (PURE, None, True),
        (PURE, COMPILER, True),
        ("a-1.0-cp311-cp311-linux_aarch64.whl", COMPILER, True),
        ("a-1.0-cp311-cp311-linux_aarch64.whl", None, False),
        ("a-1.0-cp311-cp311-linux_x86_64.whl", COMPILER, False),
    ],
)
def test_a_compiled_wheel_is_for_the_platform_that_was_compiled_for(
    builders: Any, name: str, compiler: dict[str, str] | None, fits: bool
) -> None:
    assert builders.project.fits(name, compiler) == fits


def test_a_path_that_leaks_is_found_wherever_it_lies(
    builders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders.project, "CHUNK", 4)
    for start in range(9):
        content = b"." * start + b"/where/built" + b"." * 5
        assert builders.project.occurs(b"/where/built", io.BytesIO(content))
    assert not builders.project.occurs(b"/where/built", io.BytesIO(b"/where/built"[:-1] * 3))
