"""The conformance suite tells right from wrong: of a bad provider, the tests in question fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

TESTS = Path(__file__).resolve().parents[1]
LONGEST = 900

# All that has to fail, as beginnings of names; everything else has to pass, or be skipped.
WRONG = {
    "Good": set(),
    # Lifecycle
    "HidesTheFirstError": {"test_the_first_error_is_kept_when_deleting_fails_too"},
    "KnowsOnlyItsOwn": {
        "test_it_can_be_deleted_from_another_process",
        "test_it_can_be_got_from_another_process",
    },
    "DeletesOnce": {
        "test_deleting_again_does_nothing",
        "test_it_can_be_deleted_from_another_process",
        "test_what_never_was_is_not_found_and_deleting_it_does_nothing",
    },
    # Environment
    "LetsTheHostsEnvironmentThrough": {
        "test_it_is_the_images_environment",
        "test_nothing_of_ours_is_set",
        "test_nothing_of_the_host_reaches_it_nor_stands_in_the_way",
    },
    "DropsWhatWasAskedFor": {"test_what_was_asked_for_is_added_as_it_is"},
    # Resources
    "IgnoresLimits": {"test_a_limit_that_is_not_enforced_is_refused"},
    "OnlySaysThatItLimits": {
        "test_a_limit_that_is_not_enforced_is_refused",  # those that it does not even speak of
        "test_processes_are_as_many_as_allowed",
        "test_too_much_memory_ends_the_call_and_says_why",
    },
    # Isolation
    "SaysNothing": {"test_a_provider_that_isolates_nothing_says_so"},
    "OnlySaysThatItIsolates": {
        "test_files_of_the_host_are_out_of_sight",
        "test_it_has_no_dangerous_capability",
        "test_no_program_gains_privileges",
        "test_of_folders_of_the_host_only_the_sockets_is_writable",
        "test_processes_of_the_host_are_out_of_sight",
        "test_settings_of_the_kernel_cannot_be_changed",
        "test_shared_memory_of_the_host_is_out_of_reach",
        "test_the_bundle_cannot_be_changed",
        "test_the_hosts_network_is_out_of_reach",
        "test_the_sockets_folder_shows_nothing_but_the_socket",
        "test_there_are_no_disks",
        "test_without_a_network_calls_work_and_nothing_else",
    },
    # Failures
    "SaysTooMuch": {
        "test_a_runtime_that_ends_at_once_is_quoted",
        "test_a_runtime_that_never_answers_is_not_waited_for",
        "test_an_image_that_nobody_has_is_named",
        "test_failing_again_and_again_leaves_nothing",
    },
    "LeaksAFolder": {
        "test_a_runtime_that_ends_at_once_is_quoted",
        "test_a_runtime_that_never_answers_is_not_waited_for",
        "test_failing_again_and_again_leaves_nothing",
    },
    # Cancellation
    "LeaksOnCancellation": {
        "test_a_timeout_around_create_is_a_timeout",
        "test_create_cancelled_at_any_await_leaves_nothing",
    },
    "SwallowsCancellation": {
        "test_a_timeout_around_create_is_a_timeout",
        "test_create_cancelled_at_any_await_leaves_nothing",
    },
    # Concurrency
    "MindsOneAtATime": {
        "test_many_at_once_are_all_their_own",
        "test_some_that_fail_do_not_disturb_the_others",
    },
    # Cleanup
    "KillsTheFirstOnly": {"test_processes_that_a_task_left_end_with_the_sandbox"},
    "LeaksADescriptor": {
        "test_a_sandbox_that_died_in_a_session_is_removed_with_it",
        "test_output_without_end_is_no_ones_burden",
        "test_processes_that_a_task_left_end_with_the_sandbox",
        "test_sessions_one_after_the_other_add_up_to_nothing",
        "test_the_dead_are_not_kept",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def failed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Run the suite on every provider in two pytests of its own; give what failed of which."""
    folder = tmp_path_factory.mktemp("reports")
    classes = [f"bad_providers/suite.py::Test{name}" for name in WRONG]
    running = [
        (_start(classes[half::2], bundle, folder / f"{half}.xml"), folder / f"{half}.xml")
        for half in range(2)
    ]
    found: dict[str, set[str]] = {}
    try:
        for process, report in running:
            said, _ = process.communicate(timeout=LONGEST)
            assert process.returncode == 1, said
            found |= _failed(report)
    finally:
        for process, _ in running:
            process.kill()
            process.communicate()
    return found


def _start(classes: list[str], bundle: Path, report: Path) -> subprocess.Popen[str]:
    quiet = ("-q", "--tb=short", "-p", "no:cacheprovider", "-o", "junit_logging=no")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *classes, f"--junit-xml={report}", *quiet],
        cwd=TESTS,
        env=os.environ | {"AGENTIX_CONFORMANCE_BUNDLE": str(bundle)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _failed(report: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for case in ET.parse(report).iter("testcase"):
        names = found.setdefault(case.attrib["classname"].rpartition(".Test")[2], set())
        if case.find("failure") is not None:
            names.add(case.attrib["name"].partition("[")[0])
        assert case.find("error") is None, f"{case.attrib}: it did not even run"
    return found


def _held_here() -> set[str]:
    """Return what even a provider that isolates nothing keeps, as these tests are held to it."""
    own = Path("/proc/self/status").read_text()
    return {"test_no_program_gains_privileges"} if "NoNewPrivs:\t1\n" in own else set()


@pytest.mark.nix
@pytest.mark.machine_store
@pytest.mark.slow
@pytest.mark.timeout(2 * LONGEST)
@pytest.mark.parametrize("provider", WRONG)
def test_what_is_wrong_fails_and_nothing_else(failed: dict[str, set[str]], provider: str) -> None:
    assert failed[provider] == WRONG[provider] - _held_here()


def test_every_provider_is_judged() -> None:
    source = (TESTS / "bad_providers/suite.py").read_text()
    assert set(re.findall(r"^class Test(\w+)", source, re.MULTILINE)) == set(WRONG)
