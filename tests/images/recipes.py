"""The task images: every kind of root file system that a bundle has to live in."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from images.build import build
from images.config import ImageConfig, TaskImage
from images.musl import PRINT_ENVIRONMENT

# A Debian whose Python and C library differ from those of bundles made by this interpreter.
OTHER_SUITE, OTHER_PYTHON = (
    ("trixie", "3.13") if sys.version_info < (3, 12) else ("bookworm", "3.11")
)
LIBRARIES = "/usr/lib/{triplet}"


PLAIN = ImageConfig()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one image is made: packages, then links, files and programs on top of them.

    ``alone`` takes only the named packages, without what they depend on; ``musl`` maps the path of
    a program to C source that is linked dynamically with musl; ``read_only`` says that the image
    is meant to be run with a read-only root. ``{triplet}`` in values becomes the multiarch name.
    """

    name: str
    config: ImageConfig = PLAIN
    suite: str = "bookworm"
    packages: tuple[str, ...] = ()
    alone: bool = False
    folders: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    musl: tuple[tuple[str, str], ...] = ()
    environment_program: tuple[str, ...] | None = None
    python: str | None = None
    read_only: bool = False


def _busybox(
    name: str, config: ImageConfig = PLAIN, *, tmp: bool = True, read_only: bool = False
) -> Recipe:
    applets = ("cat", "env", "false", "id", "ls", "ps", "pwd", "sh", "sleep", "touch", "true")
    return Recipe(
        name,
        config,
        packages=("busybox-static",),
        alone=True,
        folders=("tmp", "work") if tmp else ("work",),
        links=tuple((f"bin/{applet}", "busybox") for applet in applets),
        environment_program=("/bin/env",),
        read_only=read_only,
    )


def _trap(module: str) -> str:
    return f'raise SystemExit("the task\'s own {module} was imported")\n'


ACCOUNTS = (
    ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
)
DEBIAN_PATH = "/opt/task/bin:/usr/local/bin:/usr/bin:/bin"


def _debian(
    name: str,
    config: ImageConfig,
    files: tuple[tuple[str, str], ...] = (),
    folders: tuple[str, ...] = (),
) -> Recipe:
    return Recipe(
        name,
        config,
        suite=OTHER_SUITE,
        packages=("base-files", "bash", "coreutils", "dash", "libsqlite3-0", "python3"),
        folders=("tmp", "testbed", "opt/task/bin", "root", *folders),
        files=ACCOUNTS + files,
        environment_program=("/usr/bin/env",),
        python="/usr/bin/python3",
    )


# A real library of the image: should it reach a program of the bundle, then either that program
# dies at once (its C library is another one) or the library shows in its memory map.
PRELOADED = f"{LIBRARIES}/libsqlite3.so.0"
HOSTILE = ImageConfig(
    env=(
        ("PATH", DEBIAN_PATH),
        ("LD_LIBRARY_PATH", f"{LIBRARIES}:/lib/{{triplet}}"),
        ("LD_PRELOAD", PRELOADED),
        ("LD_BIND_NOW", "1"),
        ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1"),
        ("PYTHONHOME", "/usr"),
        ("PYTHONPATH", "/hostile"),
        ("PYTHONSTARTUP", "/hostile/startup.py"),
        ("PYTHONOPTIMIZE", "2"),
        ("PYTHONWARNINGS", "error"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONSAFEPATH", "1"),
        ("PYTHONNOUSERSITE", "1"),
        ("PYTHONUTF8", "0"),
        ("PYTHONIOENCODING", "latin-1"),
        ("VIRTUAL_ENV", "/opt/task"),
        ("LC_ALL", "C"),
        ("BASH_ENV", "/hostile/bashrc"),
        ("ENV", "/hostile/bashrc"),
        ("http_proxy", "http://127.0.0.1:9"),
        ("https_proxy", "http://127.0.0.1:9"),
        ("HTTP_PROXY", "http://127.0.0.1:9"),
        ("ALL_PROXY", "socks5://127.0.0.1:9"),
        ("EMPTY", ""),
        ("SPACED", "two  words = 'quoted' $HOME é"),
    ),
    workdir="/testbed",
)
SHADOWED = ("socket", "site", "sitecustomize", "usercustomize", "logging", "aiohttp", "numpy")
TRAPS = (
    *((f"testbed/{module}.py", _trap(module)) for module in SHADOWED),
    ("testbed/agentix/__init__.py", _trap("agentix")),
    ("testbed/agentix_runtime/__init__.py", _trap("agentix_runtime")),
    ("hostile/typing.py", _trap("typing")),
    ("hostile/asyncio/__init__.py", _trap("asyncio")),
    ("hostile/startup.py", _trap("startup")),
    ("hostile/bashrc", "exit 77\n"),
)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("empty"),
        _busybox("busybox"),
        Recipe(
            "musl",
            ImageConfig(env=(("TASK", "musl"),), workdir="/srv/task"),
            packages=("musl",),
            alone=True,
            folders=("tmp", "srv/task"),
            musl=(("usr/bin/env", PRINT_ENVIRONMENT),),
            environment_program=("/usr/bin/env",),
        ),
        _debian("other-python", ImageConfig(env=(("PATH", DEBIAN_PATH),), workdir="/testbed")),
        _debian("hostile", HOSTILE, TRAPS),
        _debian("preloaded", HOSTILE, (*TRAPS, ("etc/ld.so.preload", f"{PRELOADED}\n"))),
        _busybox("numeric-user", ImageConfig(user="12345", workdir="/work")),
        _busybox("sealed", tmp=False, read_only=True),
        _busybox(
            "entrypoint",
            ImageConfig(
                env=(("TASK", "entrypoint"),),
                entrypoint=("/bin/false",),
                command=("never",),
                healthcheck=("CMD-SHELL", "exit 1"),
            ),
        ),
    )
}


def image(name: str, machine: str | None = None) -> TaskImage:
    """Return the image called *name*, made now if it is not in the cache.

    It is for this machine, or for another kind of *machine*, such as ``aarch64``.
    """
    return build(RECIPES[name], machine=machine)
