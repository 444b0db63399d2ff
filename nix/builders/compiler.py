"""Have gcc find its headers, libraries and linker here, and make programs that run everywhere.

gcc looks for most things from where it lies itself. The rest it is told by the file ``specs``
beside its libraries, which the driver reads by itself: no variable and no wrapper is needed, so it
works the same when make, another driver or a derivation starts it.

What it makes starts with the bundle's dynamic loader and finds the bundle's C library by DT_RPATH,
since those are the ones it was compiled for; an image need not have any. A static program, or one
for which ``--sysroot`` was given, is made as that says.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tree import files, inside, own_links

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST_SCRIPT = 64 * 1024
_LIBRARY = re.compile(r"(?<=[\s(])/[\w.+/-]+")

# Where this file is, gcc leaves out what it would have set up itself: which of its own libraries it
# links, and the two options of *link*. A C++ driver asks for -shared-libgcc.
_COMMON = """\
*self_spec:
+ %{{!-sysroot=*:--sysroot={tree} -mglibc}}

*libgcc:
%{{static|static-pie|static-libgcc:-lgcc -lgcc_eh;\
shared-libgcc:-lgcc_s -lgcc;\
:-lgcc --push-state --as-needed -lgcc_s --pop-state}}

*link:
+ %{{!r:--build-id}} %{{!static|static-pie:--eh-frame-hdr}}\
"""
# Nothing of it where there is nothing to load, and where --sysroot was given: -mglibc, which is the
# default anyway, tells that it was not.
_NATIVE = """\
 %{{mglibc:%{{!r:%{{!static:%{{!static-pie:--disable-new-dtags -rpath {search}\
 %{{!shared:-dynamic-linker {loader}}}}}}}}}}}\
"""


def settle(tree: Path, toolchain: Path, multiarch: str, loader: str) -> None:
    """Make every gcc in *tree* one that finds its parts."""
    natives = sorted((tree / "lib/gcc").glob("*/*"))
    crosses = sorted((tree / "lib/gcc-cross").glob("*/*"))
    libraries = tree / "lib" / multiarch
    for folders, text in ((natives, _COMMON + _NATIVE), (crosses, _COMMON)):
        for folder in folders:
            (folder / "specs").write_text(
                text.format(
                    tree=tree,
                    search=f"{libraries}:{toolchain}/lib",
                    loader=f"{toolchain}/lib/{loader}",
                )
                + "\n\n"
            )
    for triple in sorted({folder.parent.name for folder in (*natives, *crosses)}):
        _tools(tree, triple)
    if natives or crosses:
        (tree / "usr").symlink_to(".")  # the root of a system, as --sysroot means it
        _libc(tree, libraries, toolchain, loader)
        own_links(tree)  # libz.so leads to where the toolchain's libz.so.1 is only now
        _linker_scripts(tree, {folder.parent.name for folder in crosses})


def _tools(tree: Path, triple: str) -> None:
    """Put the assembler, the linker and their kind where gcc looks for its own."""
    folder = tree / triple / "bin"
    for program in sorted((tree / "bin").glob(f"{triple}-*")):
        name = program.name.removeprefix(f"{triple}-")
        if name in {"ar", "as", "ld", "ld.bfd", "ld.gold", "nm", "objcopy", "ranlib", "strip"}:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(folder / name):
                (folder / name).symlink_to(os.path.relpath(program, folder))


def _libc(tree: Path, libraries: Path, toolchain: Path, loader: str) -> None:
    """Let the linker find the toolchain's libraries where libc-dev says that they are."""
    libraries.mkdir(parents=True, exist_ok=True)
    for library in sorted((toolchain / "lib").glob("*.so*")):
        if not os.path.lexists(libraries / library.name):
            (libraries / library.name).symlink_to(library)
    for folder in (tree / "lib64", tree / "lib"):
        folder.mkdir(exist_ok=True)
        if not os.path.lexists(folder / loader):
            (folder / loader).symlink_to(toolchain / "lib" / loader)


def _linker_scripts(tree: Path, foreign: set[str]) -> None:
    """Have libraries that are text (libc.so) name the files here.

    Those in the *foreign* folders are read as below ``--sysroot`` anyway: it is cross linkers' own.
    """
    for path in files(tree):
        if path.relative_to(tree).parts[0] in foreign:
            continue
        if path.suffix not in {".a", ".so"} or path.stat().st_size > _LARGEST_SCRIPT:
            continue
        content = path.read_bytes()
        if b"GNU ld script" in content:
            text = content.decode("utf-8")
            path.write_text(_LIBRARY.sub(lambda m: str(inside(tree, m[0]) or m[0]), text))
