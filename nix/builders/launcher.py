"""Start our programs so that an image's variables neither disturb them nor get lost on the way.

A launcher is a script for the static busybox, the one program that runs whatever the image sets.
The loader reads its variables before any of our code does, so a launcher takes them out of the
way: for Python it sets them aside under another name, and ``agentix_runtime.aside`` puts them
back before the user's code starts, so that children see what the image set.

A shell cannot pass on every variable (names with a dot, say) and changes some of its own (SHLVL,
PWD); therefore the environment is read from the kernel and passed on whole. Without /proc
there is no such source, and what the shell knows of it has to do.
"""

from __future__ import annotations

import shlex

PREFIX = "AGENTIX_ASIDE_"

# What the dynamic loader and the C library act on before, or without, our code; LC_CTYPE because
# Python sets it for its children where the image asks for no locale (PEP 538).
ASIDE = ("LD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "LC_CTYPE")
# The names behind LD_* that do harm, for when the environment cannot be read.
_KNOWN = ("LD_AUDIT", "LD_DEBUG", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_TRACE_LOADED_OBJECTS")

# Our tools find their libraries by DT_RPATH, which wins over LD_LIBRARY_PATH. What is loaded into
# every program is dropped: it was made for the image's C library.
DROPPED = ("LD_AUDIT", "LD_PRELOAD")

# Where programs are looked for when PATH is not set at all.
DEFAULT_PATH = "/bin:/usr/bin"


def python(busybox: str, command: list[str], *, append: str | None = None) -> str:
    """Return a launcher of *command*, a Python that puts back what was set aside.

    *append* is a folder of programs to put at the end of PATH.
    """
    known = [name for name in ASIDE if "*" not in name] + list(_KNOWN)
    return _script(
        busybox,
        command,
        kept=f'{_pattern(ASIDE)}) set -- "{PREFIX}$entry" "$@" ;;',
        append=append,
        otherwise=f"""\
    for name in {" ".join(sorted(known))}; do
        eval "value=\\${{$name-}} present=\\${{$name+yes}}"
        [ "$present" ] && export "{PREFIX}$name=$value"
        unset "$name"
    done""",
    )


def tool(busybox: str, program: str) -> str:
    """Return a launcher of *program*, one of our own that is not a Python."""
    return _script(
        busybox,
        [program],
        kept=f"{_pattern(DROPPED)}) ;;",
        append=None,
        otherwise=f"    unset {' '.join(DROPPED)}",
    )


def _pattern(names: tuple[str, ...]) -> str:
    return " | ".join(f"{name}=*" for name in names)


def _script(
    busybox: str, command: list[str], *, kept: str, append: str | None, otherwise: str
) -> str:
    appended = found = missing = ""
    if append is not None:
        found = f'\n            PATH=*) path=; set -- "$entry:{append}" "$@" ;;'
        missing = f'\n    set -- ${{path-"PATH={DEFAULT_PATH}:{append}"}} "$@"'
        appended = f"\n    export PATH=$PATH:{append}"
    return f"""\
#!{busybox}/bin/busybox sh
set -f
set -- {shlex.join(command)} "$@"
if [ -r /proc/self/environ ]; then
    while IFS= read -r -d '' entry; do
        case $entry in
            {kept}{found}
            [!=]*=*) set -- "$entry" "$@" ;;
        esac
    done </proc/self/environ{missing}
    exec {busybox}/bin/busybox env -i -- "$@"
else
{otherwise}{appended}
    [ "$SHLVL" = 1 ] && unset SHLVL
    exec "$@"
fi
"""
