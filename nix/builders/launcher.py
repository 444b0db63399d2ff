"""Start our programs so that an image's variables neither disturb them nor get lost on the way.

A launcher is a script for the static busybox, the one program that runs whatever the image sets.
The loader reads its variables before any of our code does, so a launcher takes them out of the
way: for Python it sets them aside under another name, and ``agentix_runtime.aside`` puts them
back before the user's code starts, so that children see what the image set.

A shell changes some variables (SHLVL, PWD), so what the image set is read from the kernel. Without
/proc there is no such source, and what the shell knows of it has to do. Values go from environment
to environment, since every user can read a command line; only of variables that a shell cannot pass
on (names with a dot, say) they are in one for a moment, that of ``env``.
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
# What others built finds its libraries by DT_RUNPATH, as nixpkgs' programs do: that comes later.
DROPPED_FOR_OTHERS = (*DROPPED, "LD_LIBRARY_PATH")

# What a shell cannot have as a variable, or has as one of its own: ``env`` sets it afterwards.
_LOST = (
    "[0-9]*",
    "*[!A-Za-z0-9_]*",
    "IFS",
    "PPID",
    "OPTIND",
    "RANDOM",
    "LINENO",
    "FUNCNAME",
    "EPOCH*",
    "agentix_*",
)

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
        names=ASIDE,
        then=f'unset "${{agentix_name%%[!A-Za-z0-9_]*}}"; agentix_entry={PREFIX}$agentix_entry',
        append=append,
        otherwise=f"""\
    for agentix_name in {" ".join(sorted(known))}; do
        eval "agentix_entry=\\${{$agentix_name-}} agentix_lost=\\${{$agentix_name+yes}}"
        [ "$agentix_lost" ] && export "{PREFIX}$agentix_name=$agentix_entry"
        unset "$agentix_name"
    done""",
    )


def tool(
    busybox: str, program: str, dropped: tuple[str, ...] = DROPPED, first: tuple[str, ...] = ()
) -> str:
    """Return a launcher of *program*, one of our own that is not a Python.

    It and its children do without the variables *dropped*. *first* are lines of the script, which
    may put arguments before those in ``$@``.
    """
    return _script(
        busybox,
        [program],
        names=dropped,
        then='unset "$agentix_name"; continue',
        append=None,
        first=first,
        otherwise=f"    unset {' '.join(dropped)}",
    )


def _script(
    busybox: str,
    command: list[str],
    *,
    names: tuple[str, ...],
    then: str,
    append: str | None,
    otherwise: str,
    first: tuple[str, ...] = (),
) -> str:
    appended = found = missing = ""
    if append is not None:
        found = f"""
        [ "$agentix_name" = PATH ] && agentix_path= agentix_entry=$agentix_entry:{append}"""
        missing = f"""
    [ "${{agentix_path-missing}}" ] && export PATH={DEFAULT_PATH}:{append}"""
        appended = f"\n    export PATH=$PATH:{append}"
    return f"""\
#!{busybox}/bin/busybox sh
set -f
{"".join(f"{line}{chr(10)}" for line in first)}set -- {shlex.join(command)} "$@"
unset agentix_path agentix_lost
if [ -r /proc/self/environ ]; then
    unset PWD OLDPWD SHLVL
    while IFS= read -r -d '' agentix_entry; do
        agentix_name=${{agentix_entry%%=*}}
        case $agentix_entry in
            [!=]*=*) ;;
            *) continue ;;
        esac{found}
        case $agentix_name in
            {" | ".join(names)}) {then} ;;
        esac
        case $agentix_name in
            {" | ".join(_LOST)}) set -- "$agentix_entry" "$@"; agentix_lost=yes ;;
            *) export "$agentix_entry" ;;
        esac
    done </proc/self/environ{missing}
    [ "${{agentix_lost-}}" ] && set -- {busybox}/bin/busybox env -- "$@"
else
{otherwise}{appended}
    [ "$SHLVL" = 1 ] && unset SHLVL
fi
exec "$@"
"""
