"""Realise an expression, and build it again to compare."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import NixError
from agentix.nix.installation import Nix, find
from agentix.nix.log import BuildLog
from agentix.nix.program import run
from agentix.nix.store import producers
from agentix.progress import SILENT, Progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIMIT = 4 * 3600.0  # seconds for a whole build
_SILENCE = 1800  # seconds that one builder may print nothing
_SHOWN = 5  # warnings: two wheels may have hundreds of files in common
_NO_SANDBOX = re.compile(
    r"while setting up the build environment|unable to start build process"
    r"|unable to .*namespace|cannot (set|open) .*namespace"
    r"|does not support the kernel namespaces|(mounting|unmounting|remounting) .*not permitted"
    r"|(unshare|pivot_root|setting up a private mount namespace).*not permitted",
)


def build(
    expression: Path,
    arguments: Mapping[str, str] | None = None,
    *,
    out_link: Path | None = None,
    nix: Nix | None = None,
    progress: Progress = SILENT,
) -> Path:
    """Build the file *expression*, called with strings as *arguments*; return the store path.

    While the link *out_link* exists, a garbage collection leaves the result alone.
    NixError carries the last lines of the step that failed.
    """
    nix = nix or find()
    words = _called(expression, arguments)
    words += ["--out-link", str(out_link)] if out_link is not None else ["--no-out-link"]
    output, log = _realise(nix, "nix-build", words, "build", progress)
    _tell(log.warnings, progress)
    lines = output.split()
    if len(lines) != 1:
        raise NixError(f"{expression.name} gives {len(lines)} results instead of one")
    return nix.real(lines[0])


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What building again has shown: how many steps were compared, and whose outputs differ.

    Of each of those both are kept: the first build's in the store, and the second's beside it until
    the next garbage collection.
    """

    steps: int
    unlike: tuple[tuple[Path, Path], ...]


def rebuild(
    expression: Path,
    arguments: Mapping[str, str] | None = None,
    *,
    nix: Nix | None = None,
    progress: Progress = SILENT,
) -> Rebuilt:
    """Build every step of *expression* a second time, where it has been built, and compare.

    NixError when a step fails. What was fetched, and is known by its hash, is left out.
    """
    nix = nix or find()
    derivation = run(nix, "nix-instantiate", _called(expression, arguments)).strip()
    steps = producers(nix, derivation)
    _realise(nix, "nix-store", ["--realise", *steps], "complete", progress)
    with tempfile.TemporaryDirectory(prefix="agentix-check-") as scratch:
        os.chmod(scratch, 0o711)  # noqa: PTH101,S103 - builders may be other users
        words = ["--realise", "--check", "--keep-failed", "--keep-going", *steps]
        _, log = _realise(nix, "nix-store", words, "check", progress, Path(scratch))
    for folder in log.folders:  # a daemon's, which has its own place for them
        shutil.rmtree(folder, ignore_errors=True)
    unlike = tuple((nix.real(first), nix.real(second)) for first, second in log.unlike())
    return Rebuilt(len(steps), unlike)


def _called(expression: Path, arguments: Mapping[str, str] | None) -> list[str]:
    """Return the words that name *expression*, called with strings."""
    pairs = (("--argstr", name, value) for name, value in (arguments or {}).items())
    return [str(expression), *(word for pair in pairs for word in pair)]


def _realise(
    nix: Nix,
    program: str,
    words: Sequence[str],
    title: str,
    progress: Progress,
    scratch: Path | None = None,
) -> tuple[str, BuildLog]:
    with progress.step(title) as step:
        log = BuildLog(on_built=step.advance)
        try:
            output = _run(nix, program, words, log, scratch)
        except NixError as error:
            if error.returncode is None:
                raise
            if unlike := log.unlike():
                step.outcome(f"{len(unlike)} of {log.built} steps gave something else")
                return "", log
            if nix.daemon or not nix.sandbox or not _NO_SANDBOX.search(log.failure().error):
                raise _explain(program, error, log) from error
            if nix.private:
                raise NixError(
                    f"this machine forbids the user namespaces that a store of one's own "
                    f"({nix.root}) needs; build as root, or install a Nix daemon (on Debian: "
                    "apt-get install nix-setup-systemd, and be in the group nix-users)",
                    returncode=error.returncode,
                ) from error
            return _realise(replace(nix, sandbox=False), program, words, title, progress, scratch)
        step.outcome("1 step" if log.built == 1 else f"{log.built} steps")
        return output, log


def _tell(warnings: Sequence[str], progress: Progress) -> None:
    for warning in warnings[:_SHOWN]:
        with progress.step("build") as step:
            step.outcome(f"warning: {warning}")
    if more := warnings[_SHOWN:]:
        with progress.step("build") as step:
            step.outcome(f"warning: {len(more)} more of this kind")


def _run(nix: Nix, program: str, words: Sequence[str], log: BuildLog, scratch: Path | None) -> str:
    command = [
        *("--log-format", "internal-json"),
        *("--max-jobs", "auto"),
        *("--max-silent-time", str(_SILENCE)),
        *words,
    ]
    return run(nix, program, command, timeout=_LIMIT, on_line=log.feed, scratch=scratch)


def _explain(program: str, error: NixError, log: BuildLog) -> NixError:
    failure = log.failure()
    said = " ".join(failure.error.split()).removeprefix("error: ")
    if failure.step is None:
        message = f"{program} failed with exit status {error.returncode}: {said}"
    else:
        how = "failed" if failure.status is None else f"failed with exit status {failure.status}"
        last = failure.lines[-1] if failure.lines else "it printed nothing"
        message = f"building {failure.step} {how}: {last}"
    return NixError(message, returncode=error.returncode, log="\n".join(failure.lines))
