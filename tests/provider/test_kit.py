"""What plugins of others may rely on does not shrink by accident."""

from __future__ import annotations

from agentix.provider import kit


def test_the_names_for_backends_are_pinned() -> None:
    assert set(kit.__all__) == {
        *("MOUNT", "RuntimeFolder", "until_ready", "OutputTail", "account"),
        "private_folder",
        *("lease_arguments", "hold_lease", "release_lease", "LEASE_ENDED"),
        *("list_recorded", "in_order"),
        *("HostedProcess", "ProcessRef", "SandboxProcesses"),
        *("LocalProvider", "Making", "remove_leftovers"),
        *("stoppable", "Stop", "StoppedError", "undone_on_error", "carry_out", "to_the_end"),
        *("BundleCache", "CachedBundle", "deploy_locally", "store_tar"),
        *("Image", "ImageArchive", "ImageStore", "RunConfig", "platform_of", "resolve"),
        "emulator",
        *("cache_root", "hold", "Memory", "remove", "erase", "what_to_do", "plain", "quoted"),
        *("StubProvider", "NotYet", "api_key"),
    }
    assert all(hasattr(kit, name) for name in kit.__all__)
