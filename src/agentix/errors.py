"""Every error that Agentix raises on purpose.

The message is one line: what was attempted, on what, why it failed, what to do. Attributes
carry what a caller may want to act on; a third-party cause is chained, never quoted as the whole.

    AgentixError
    ├── ProjectError               (ValueError)     the project or its settings cannot be read
    ├── LockError                                   dependencies cannot be resolved or locked
    ├── FetchError                                  an artifact is missing, or not what was locked
    ├── NixError                                    Nix is missing, refuses, or a derivation failed
    ├── BundleError                (ValueError)     a bundle or cache entry is not what it claims
    ├── DistributionError                           a registry does not take or give a bundle
    ├── ProviderError                               a sandbox cannot be created, found or removed
    │   ├── ProviderNotFound       (LookupError)    no provider of that name is installed
    │   ├── ImageError                              the task image is missing or cannot be used
    │   └── SandboxNotFound        (LookupError)    no live sandbox of that id
    ├── RemoteSioError                              a namespace's handler on the other side failed
    └── RemoteCallError                             the function raised, or its call failed
        ├── CallCancelled                           cancelled inside the sandbox
        ├── CallTimeout            (TimeoutError)
        ├── WorkerExited                            the worker process died during the call
        ├── RuntimeUnreachable     (ConnectionError)
        └── RestrictedUnpickleError (pickle.UnpicklingError)  a result needs a class not allowed
"""

from __future__ import annotations

import pickle
import signal
from dataclasses import dataclass


class AgentixError(Exception):
    """The root of every error that Agentix raises on purpose."""


class ProjectError(AgentixError, ValueError):
    """A project, or a setting in its pyproject.toml, cannot be used."""


class LockError(AgentixError):
    """The dependencies of a project cannot be resolved into a lock."""


class FetchError(AgentixError):
    """A locked artifact cannot be had, or what was received is not what was locked."""


class NixError(AgentixError):
    """Nix is missing, refused, or a derivation failed.

    ``returncode`` is the exit status of the Nix program (``None`` when it did not run) and
    ``log`` the last lines that the failing step printed.
    """

    def __init__(self, message: str, *, returncode: int | None = None, log: str = "") -> None:
        super().__init__(message)
        self.returncode = returncode
        self.log = log


class BundleError(AgentixError, ValueError):
    """A bundle file or a cache entry is corrupt, hostile, or of another kind than asked for."""


class DistributionError(AgentixError):
    """A bundle cannot be pushed to a registry or pulled from it."""


class ProviderError(AgentixError):
    """A sandbox cannot be created, found or removed."""


class ProviderNotFound(ProviderError, LookupError):  # noqa: N818 - the standard term
    """No provider of that name is installed."""


class ImageError(ProviderError):
    """A task image is missing, unreadable, or made for another platform."""


class SandboxNotFound(ProviderError, LookupError):  # noqa: N818 - the standard term
    """No live sandbox has that id."""


class RemoteSioError(AgentixError):
    """A request to a namespace on the other side failed there, or nobody answers it any more.

    ``type`` names the exception class, ``message`` is its text, and ``status_code`` is the integer
    of that name that the exception had, if any: a 429 of an upstream service stays a 429.
    """

    def __init__(self, type: str, message: str, status_code: int | None = None) -> None:  # noqa: A002 - public name
        self.type = type
        self.message = message
        self.status_code = status_code
        super().__init__(type, message, status_code)

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


@dataclass(frozen=True, slots=True)
class RemoteErrorInfo:
    """What is known of a failure inside a sandbox: text only, nothing that could run here."""

    type: str
    message: str
    traceback: str = ""
    cancelled: bool = False


class RemoteCallError(AgentixError):
    """The function raised inside the sandbox, or its call could not be completed.

    ``error`` describes the failure as text, ``target`` is the ``module::qualname`` that was called.
    ``str()`` includes the traceback from inside the sandbox.
    """

    def __init__(self, error: RemoteErrorInfo, *, target: str) -> None:
        self.error = error
        self.target = target
        # One argument: with two, OSError would take them for an error number and its text.
        super().__init__(f"{target}: {error.message}")

    def __str__(self) -> str:
        kind = self.error.type
        said = (
            self.error.message if kind == type(self).__name__ else f"{kind}: {self.error.message}"
        )
        head = f"{self.target}: {said}"
        trace = self.error.traceback.rstrip()
        return f"{head}\n\nTraceback from inside the sandbox:\n{trace}" if trace else head

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.error, self.target, self._extra()))

    def _extra(self) -> dict[str, object]:
        return {}


def _rebuild(
    cls: type[RemoteCallError], error: RemoteErrorInfo, target: str, extra: dict[str, object]
) -> RemoteCallError:
    return cls(error, target=target, **extra)


class CallCancelled(RemoteCallError):  # noqa: N818 - public name
    """The call ended by cancellation on the sandbox side (not by cancelling the local task)."""


class CallTimeout(RemoteCallError, TimeoutError):  # noqa: N818 - public name
    """The call did not end within its timeout, or gave no further item, and was cancelled.

    An async function is cancelled where it waits, a sync one when its thread next runs Python code.
    """


class WorkerExited(RemoteCallError):  # noqa: N818 - public name
    """The worker process died during the call.

    ``returncode`` follows :mod:`subprocess`: negative numbers are signals, named by ``signal``.
    """

    def __init__(self, error: RemoteErrorInfo, *, target: str, returncode: int | None) -> None:
        super().__init__(error, target=target)
        self.returncode = returncode

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the worker, such as ``SIGKILL``."""
        if self.returncode is None or self.returncode >= 0:
            return None
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    def _extra(self) -> dict[str, object]:
        return {"returncode": self.returncode}


class RuntimeUnreachable(RemoteCallError, ConnectionError):  # noqa: N818 - public name
    """The runtime inside the sandbox cannot be reached, or went away before it answered."""


class RestrictedUnpickleError(RemoteCallError, pickle.UnpicklingError):
    """A returned value needs a class that is not allowed here; it was not imported."""
