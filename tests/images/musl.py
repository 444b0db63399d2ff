"""A program that is linked dynamically with musl, made without a C compiler on the machine.

Debian has no package whose programs use musl, so one is compiled with Debian's tcc, which is a
single small program that runs from where it was unpacked.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from images.debian import TIMEOUT, download, unpack

if TYPE_CHECKING:
    from pathlib import Path

PRINT_ENVIRONMENT = """
#include <stdio.h>
extern char **environ;
int main(void)
{
    for (char **entry = environ; *entry; entry++)
        puts(*entry);
    return 0;
}
"""


def compile_with_musl(
    source: str, target: Path, *, machine: str, scratch: Path, cache: Path
) -> None:
    """Compile the C program *source* to *target*, with musl's loader as its interpreter."""
    tools = scratch / "tools"
    if not tools.exists():
        tools.mkdir(parents=True)
        unpack(download("bookworm", ["tcc", "musl", "musl-dev"], cache, alone=True), tools)
    triplet = f"{machine}-linux-musl"
    objects = tools / "usr/lib" / triplet
    runtime = tools / f"usr/lib/{machine}-linux-gnu/tcc/libtcc1.a"
    program = scratch / "program.c"
    program.write_text(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            tools / "usr/bin/tcc", "-nostdinc", "-nostdlib", f"-I{tools}/usr/include/{triplet}",
            objects / "crt1.o", objects / "crti.o", program, objects / "libc.so", runtime,
            objects / "crtn.o", "-o", target,
        ],
        check=True, timeout=TIMEOUT, env=os.environ | {"LD_SO": f"/lib/ld-musl-{machine}.so.1"},
    )  # fmt: skip
    target.chmod(0o755)  # whatever the umask
