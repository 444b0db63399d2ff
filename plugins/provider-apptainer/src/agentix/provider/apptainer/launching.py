"""The script that is run first in a sandbox, by the bundle's own shell, which needs no image.

Apptainer gives a container variables of its own, knows neither the folder nor the home that the
image means, and lets the image's own scripts alter what it was told. So it starts this instead,
which puts things right and becomes the runtime. Its values are nobody else's to read: it is a file
in the sandbox's private folder, that it removes first.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from agentix.errors import BundleError
from agentix.provider.kit import MOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentix.provider.apptainer.images import Opened
    from agentix.provider.kit import CachedBundle

NAME = "start"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_HOME = """\
home=/
if [ -r /etc/passwd ]; then
    while IFS=: read -r _ _ uid _ _ folder _; do
        [ "$uid" = {uid} ] && home=$folder && break
    done </etc/passwd
fi
[ -d "$home" ] || mkdir -p -- "$home" 2>/dev/null
"""
_FOLDER = """\
cd -- {folder} 2>/dev/null || {{ mkdir -p -- {folder} && cd -- {folder}; }} || exit 1
"""
# What the image's own scripts have set stays; what is Apptainer's goes.
_THEIRS = """\
while IFS= read -r -d '' entry; do
    name=${entry%%=*}
    case $name in
        APPTAINER_* | SINGULARITY_* | APPTAINERENV_* | SINGULARITYENV_*) unset "$name" ;;
    esac
done </proc/self/environ
libraries=${LD_LIBRARY_PATH%/.singularity.d/libs}
libraries=${libraries%:}
if [ "$libraries" ]; then export LD_LIBRARY_PATH="$libraries"; else unset LD_LIBRARY_PATH; fi
[ "$LANG" = C ] && unset LANG
"""
_APPTAINERS = ("PS1", "PROMPT_COMMAND", "TERM", "USER_PATH", "PWD", "OLDPWD", "SHLVL")


def shell_of(bundle: CachedBundle) -> str:
    """Return the static program, named as in a sandbox, that runs *bundle*'s own scripts."""
    script = bundle.nix / "store" / bundle.manifest.root / "runtime" / "bootstrap.sh"
    try:
        with script.open("rb") as file:
            words = file.readline(4096).decode(errors="replace").removeprefix("#!").split()
    except OSError as error:
        raise BundleError(f"bundle {bundle.manifest.title} cannot be read: {error}") from error
    if len(words) != 2 or not words[0].startswith("/nix/store/") or words[1] != "sh":
        raise BundleError(f"bundle {bundle.manifest.title} starts in a way that is not known here")
    return words[0]


def script_for(
    image: Opened, *, uid: int, added: Mapping[str, str] | None, command: Sequence[str]
) -> str:
    """Return the script that runs *command* as programs of *image* run, for the user *uid*.

    *added* goes on top of the image's environment.
    """
    folder = f"/{(image.run.working_dir or '').lstrip('/')}"
    lines = [f"rm -f {MOUNT}/{NAME}\n", _HOME.format(uid=uid)]
    lines.append(_FOLDER.format(folder=shlex.quote(folder)))
    if image.scripted:
        lines.append(_THEIRS)
        words = ["env", *(f"-u{name}" for name in _APPTAINERS), "--"]
        environment: dict[str, str] = {}
    else:
        words = ["env", "-i", "--", shlex.quote(f"PATH={PATH}")]
        environment = _environment(image)
    words.append('HOME="$home"')
    for name, value in (environment | dict(added or {})).items():
        words.append(shlex.quote(f"{name}={value}"))
    # `env` is part of the shell: the values never are anybody's command line.
    return "".join([*lines, "exec ", " ".join(words), " ", shlex.join(command), "\n"])


def _environment(image: Opened) -> dict[str, str]:
    found = {}
    for entry in image.run.env or ():
        name, separator, value = entry.partition("=")
        if name and separator and "\0" not in entry:
            found[name] = value
    return found
