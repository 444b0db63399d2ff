"""Build a source tree, or what a source archive holds, into one wheel with its PEP 517 backend.

The backend sees a writable copy with the timestamps of 1980 (the first that a zip file can hold),
no network, and an environment of exactly its locked requirements.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
import zlib
from email.parser import BytesParser
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

import step

if __name__ == "__main__":
    sys.path.insert(0, step.config()["hooks"])

from pyproject_hooks import BackendUnavailable, BuildBackendHookCaller

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EPOCH = 315532800
CHUNK = 4 * 1024 * 1024  # bytes
LONGEST = 64 * 1024  # bytes that are kept of a line
LINGERING = 1.0  # seconds for the last words of a backend
# What compilers, linkers and setup scripts say when a header, a library or a program is not there.
LACKING = re.compile(
    rb"fatal error: ([\w./+-]{1,99}): No such file"
    rb"|cannot find -l([\w.+-]{1,99})"
    rb"|\b((?:pkg|\w{1,40})[-_]config)\b.{0,40}not found"
    rb"|No such file or directory: '((?:pkg|\w{1,40})[-_]config)'"
)
# What reading an archive raises that is cut off, damaged, hostile or encrypted.
UNUSABLE = (
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
)
# Distinct below the build folder, so that finding the path in a wheel means that it leaked.
WORKSHOP = "agentix-workshop"


def main() -> None:
    """Build the project of this step."""
    config: dict[str, Any] = step.config()
    workshop = Path(os.environ["NIX_BUILD_TOP"]) / WORKSHOP
    tree, home, wheels = (workshop / name for name in ("source", "home", "wheels"))
    for folder in (home, wheels):
        folder.mkdir(parents=True)
    source = Path(config["source"])
    if source.is_file():
        source = unpacked(config["name"], source, workshop / "archive")
    stage(source, tree)
    tree /= config["path"]
    environ = environment(config, home)
    python = f"{config['backend']}/bin/python"
    if config["compiler"] is not None:
        compiler = compile_with(config["compiler"], workshop)
        # Also the programs of what only came along: pkg-config is one of pkgconf's.
        tools = config["compiler"]["tools"]
        environ |= compiler | {"PATH": f"{environ['PATH']}:{tools}/bin:{tools}/root/bin"}
        if not config["native"]:
            python = f"{config['backend']}/libexec/python3"  # which looks at its environment
            environ |= compile_for(config["compiler"], workshop)
    name = build(config["name"], tree, wheels, python, environ)
    if not config["native"] and not fits(name, config["compiler"]):
        step.fail(
            f"the project {config['name']} builds a wheel for this machine only ({name}); "
            f"for {config['platform']}, build it on such a machine"
        )
    check(wheels / name, config["name"], workshop)
    check_version(wheels / name, config["name"], config["version"], tree)
    step.out().mkdir()
    shutil.copyfile(wheels / name, step.out() / name)


def unpacked(project: str, archive: Path, folder: Path) -> Path:
    """Unpack a source *archive* into *folder* and return what is in the one folder at its top."""
    folder.mkdir()
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as zipped:
                zipped.extractall(folder)  # noqa: S202 - in a sandbox of Nix
        else:
            with tarfile.open(archive) as tar:
                if hasattr(tarfile, "data_filter"):  # nothing outside of the folder, no devices
                    tar.extraction_filter = tarfile.data_filter
                tar.extractall(folder)  # noqa: S202 - likewise
    except UNUSABLE as error:
        reason = " ".join(str(error).split())
        step.fail(f"the source archive of the project {project} cannot be unpacked: {reason}")
    tops = list(folder.iterdir())
    return tops[0] if len(tops) == 1 and tops[0].is_dir() else folder


def stage(source: Path, destination: Path) -> None:
    """Copy *source*, writable and with one timestamp for everything."""
    if source.is_relative_to(destination.parent):
        source.rename(destination)
    else:
        shutil.copytree(source, destination, symlinks=True)
    for path in [destination, *destination.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o200)
        os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)


def environment(config: dict[str, Any], home: Path) -> dict[str, str]:
    """Return the environment variables that a backend runs with."""
    # The tree comes without its history; the lock has the version that it gave.
    name = re.sub(r"[-_.]+", "_", config["name"]).upper()
    return {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": f"{config['backend']}/bin",
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "SETUPTOOLS_SCM_PRETEND_VERSION": config["version"],
        f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{name}": config["version"],
        "PDM_BUILD_SCM_VERSION": config["version"],
        "POETRY_DYNAMIC_VERSIONING_BYPASS": config["version"],
        "UV_DYNAMIC_VERSIONING_BYPASS": config["version"],
    }


def compile_with(compiler: dict[str, str], workshop: Path) -> dict[str, str]:
    """Return the variables by which a backend finds the compiler and Python's headers."""
    gcc, root = f"{compiler['multiarch']}-gcc", f"{compiler['tools']}/root"
    # Neither the place nor anything that tells of it may get into what is made.
    flags = f"-g0 -ffile-prefix-map={workshop}=."
    return {
        "CC": gcc,
        "CXX": f"{compiler['multiarch']}-g++",
        "CFLAGS": flags,
        "CXXFLAGS": flags,
        "CPATH": ":".join(
            f"{root}/include/{folder}" for folder in (f"python{compiler['python']}", "")
        ).rstrip("/"),
        "PKG_CONFIG_LIBDIR": ":".join(
            f"{root}/{folder}/pkgconfig" for folder in (f"lib/{compiler['multiarch']}", "share")
        ),
        "PKG_CONFIG_SYSROOT_DIR": root,
    }


def compile_for(compiler: dict[str, str], workshop: Path) -> dict[str, str]:
    """Return the variables by which Python builds for another platform than its own.

    What it knows of that platform is in one module of that platform's Python.
    """
    name = f"_sysconfigdata__{compiler['multiarch']}"
    folder = workshop / "sysconfig"
    folder.mkdir()
    known = Path(compiler["toolchain"], f"lib/python{compiler['python']}/{name}.py")
    shutil.copyfile(known, folder / known.name)
    return {
        "_PYTHON_HOST_PLATFORM": f"linux-{machine(compiler)}",
        "_PYTHON_SYSCONFIGDATA_NAME": name,
        "PYTHONPATH": str(folder),
    }


def fits(wheel: str, compiler: dict[str, str] | None) -> bool:
    """Say whether a wheel of that name is for the platform that is built for."""
    platform = wheel.removesuffix(".whl").rpartition("-")[2]
    return platform == "any" or (compiler is not None and platform.endswith(machine(compiler)))


def machine(compiler: dict[str, str]) -> str:
    """Return the kind of machine that is built for, as wheels call it."""
    return compiler["multiarch"].partition("-")[0]


def build(project: str, tree: Path, wheels: Path, python: str, environ: dict[str, str]) -> str:
    """Call the backend of *tree* and return the name of the wheel that it made."""
    backend, path = declared(project, tree)

    lacking: list[str] = []

    def run(
        cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None
    ) -> None:
        output, into = os.pipe()
        process = subprocess.Popen(
            cmd,
            cwd=cwd,
            env={**environ, **(extra_environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=into,
            stderr=subprocess.STDOUT,
        )
        os.close(into)
        reader = Thread(target=pass_on, args=(output, lacking), daemon=True)
        reader.start()
        process.wait()
        reader.join(LINGERING)  # it would wait for ever, where something was left running
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, cmd)

    caller = BuildBackendHookCaller(str(tree), backend, path, run, python)
    sentence = f"the build backend {backend} of the project {project}"
    try:
        return caller.build_wheel(str(wheels))
    except BackendUnavailable as error:
        reason = error.traceback.strip().rpartition("\n")[2] or str(error)
        step.fail(f"{sentence} cannot be imported: {reason}; is it in build-system.requires?")
    except subprocess.CalledProcessError:
        if lacking:
            step.fail(
                f"{sentence} failed, for lack of {lacking[0]}; add the Debian package that has it "
                "to [tool.agentix] build, or choose a version that has a wheel"
            )
        step.fail(f"{sentence} failed; its last lines are above")


def pass_on(output: int, lacking: list[str]) -> None:
    """Print what a backend says, and note in *lacking* what it says that it lacks."""
    rest = b""
    while data := os.read(output, CHUNK):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[-LONGEST:]
        found = (LACKING.search(line) for line in lines)
        lacking += [next(filter(None, f.groups())).decode("ascii", "replace") for f in found if f]


def read_pyproject(project: str, tree: Path) -> dict[str, Any]:
    """Return the tables of a project's pyproject.toml; a legacy tree has none."""
    file = tree / "pyproject.toml"
    if not file.is_file():
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        step.fail(f"pyproject.toml of the project {project} cannot be read: {error}")


def declared(project: str, tree: Path) -> tuple[str, list[str] | None]:
    """Return the backend that a project asks for and its ``backend-path``, as PEP 517 says."""
    table = read_pyproject(project, tree).get("build-system", {})
    # What has no backend is built as it would have been before there were any.
    return table.get("build-backend", "setuptools.build_meta:__legacy__"), table.get("backend-path")


def check(wheel: Path, project: str, workshop: Path) -> None:
    """Refuse a wheel that remembers where it was built: it would differ elsewhere."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                if occurs(os.fsencode(workshop), file):
                    step.fail(
                        f"{member} of the project {project} contains the path it was built in"
                    )


def occurs(text: bytes, file: IO[bytes]) -> bool:
    """Say whether *text* is anywhere in *file*, of which only a part is in memory at a time."""
    last = b""
    while chunk := file.read(CHUNK):
        if text in last + chunk:
            return True
        last = (last + chunk)[-len(text) :]
    return False


def check_version(wheel: Path, project: str, locked: str, tree: Path) -> None:
    """Refuse a wheel whose version, which the backend decided, is not the one that was locked."""
    if "version" in read_pyproject(project, tree).get("project", {}):
        return  # a backend has no say in it, only in its spelling
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        found = [BytesParser().parsebytes(archive.read(name))["Version"] for name in names]
    if found not in ([locked], []):  # without any it is no wheel, as installing it will say
        step.fail(
            f"the project {project} builds as version {found[0]}, but its lock says {locked}; run "
            "'agentix lock', or, if its backend asks Git, which no build can, set a fixed version"
        )


if __name__ == "__main__":
    os.umask(0o022)
    main()
