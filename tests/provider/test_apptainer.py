"""What the apptainer provider decides before Apptainer runs; runs are in tests/integration."""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import struct
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from images.bundles import bundle_that_runs
from images.debian import ImagesUnavailable
from stub_runtime import make_entry

from agentix import SandboxConfig, SandboxResource
from agentix.bundle import BundleCache
from agentix.errors import BundleError, ImageError, ProviderError
from agentix.provider.apptainer import ApptainerProvider, ApptainerProviderConfig
from agentix.provider.apptainer.diagnosis import complaint, explain
from agentix.provider.apptainer.images import Opened
from agentix.provider.apptainer.launching import script_for, shell_of
from agentix.provider.apptainer.limits import check_limits
from agentix.provider.apptainer.options import options_for
from agentix.provider.apptainer.sif import is_sif, read_sif
from agentix.provider.kit import ProcessRef, RunConfig, RuntimeFolder

OCI = b'{"Env":["A=b"],"User":"12","WorkingDir":"/work","Entrypoint":["/x"]}'


def sif(*objects: tuple[int, bytes, bytes], architecture: bytes = b"02") -> bytes:
    """Return a SIF file with *objects*: kind, name and content."""
    where = 4096 + 585 * len(objects)
    head = b"#!/usr/bin/env run-singularity\n\0"
    head += b"SIF_MAGIC\x0001\0" + architecture + b"\0" + bytes(16)
    head += struct.pack("<8q", 0, 0, 0, len(objects), 4096, 585 * len(objects), where, 0)
    table, data = b"", b""
    for number, (kind, name, content) in enumerate(objects, 1):
        table += struct.pack("<i?III", kind, True, number, 1, 0)
        table += struct.pack("<7q", where + len(data), len(content), len(content), 0, 0, 0, 0)
        table += name.ljust(128, b"\0") + bytes(384)
        data += content
    return head.ljust(4096, b"\0") + table + data


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_sif_file_says_for_which_platform_and_how_to_run(tmp_path: Path) -> None:
    content = sif(
        (0x4001, b"", b"bootstrap: docker\nfrom: x\n"),
        (0x4006, b"inspect-metadata.json", b"{}"),
        (0x4006, b"oci-config.json", OCI),
    )
    path = written(tmp_path / "x.sif", content)
    info = read_sif(path)
    assert is_sif(path)
    assert info.platform == "linux/amd64"
    assert info.run == RunConfig.model_validate_json(OCI)
    assert not info.customised


def test_a_definition_with_sections_makes_an_image_its_own(tmp_path: Path) -> None:
    definition = b"bootstrap: docker\nfrom: x\n  %environment\nexport A=c\n"
    content = sif((0x4001, b"", definition), (0x4006, b"oci-config.json", OCI), architecture=b"04")
    info = read_sif(written(tmp_path / "x.sif", content))
    assert (info.platform, info.customised) == ("linux/arm64", True)


def test_one_that_was_made_of_no_oci_image_says_nothing_of_that(tmp_path: Path) -> None:
    info = read_sif(written(tmp_path / "x.sif", sif((0x4004, b"", b"hsqs"))))
    assert info.run is None


def test_another_file_is_no_sif(tmp_path: Path) -> None:
    assert not is_sif(written(tmp_path / "x.tar", b"short"))
    with pytest.raises(ImageError, match=r"x\.tar"):
        read_sif(tmp_path / "x.tar")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 4095 + 585 * 2 + len(OCI)), st.binary(min_size=1, max_size=16)),
        max_size=6,
    ),
    st.integers(0, 8192),
)
def test_a_damaged_sif_file_is_an_image_error_and_nothing_else(
    tmp_path: Path, changes: list[tuple[int, bytes]], length: int
) -> None:
    content = bytearray(sif((0x4001, b"", b"from: x"), (0x4006, b"oci-config.json", OCI)))
    for place, replacement in changes:
        content[place : place + len(replacement)] = replacement
    path = written(tmp_path / "x.sif", bytes(content[:length]) if length % 3 else bytes(content))
    with contextlib.suppress(ImageError):
        read_sif(path)


def program(folder: Path, script: str) -> Path:
    path = folder / "apptainer"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo apptainer version 1.1.9", "is version 1.1, which is too old"),
        ("echo singularity-ce version 4.1.0", "does not run as an Apptainer"),
        ("echo apptainer version 1.4.5; exit 3", "exit status 3"),
    ],
)
async def test_a_program_that_will_not_do_is_named(
    tmp_path: Path, script: str, reason: str
) -> None:
    config = SandboxConfig(image=str(tmp_path), bundle=tmp_path)
    path = program(tmp_path, script)
    with pytest.raises(ProviderError, match=f"{path} .*{reason}.*install Apptainer 1.2"):
        await ApptainerProviderConfig(program=path).to_provider().create(config)


async def test_without_apptainer_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config = SandboxConfig(image=str(tmp_path), bundle=tmp_path)
    with pytest.raises(ProviderError, match="not on PATH; install Apptainer"):
        await ApptainerProvider().create(config)


async def test_gpus_are_refused(tmp_path: Path) -> None:
    limits = SandboxResource(gpu=1)
    with pytest.raises(ProviderError, match="gpu"):
        await ApptainerProvider().create(
            SandboxConfig(image=str(tmp_path), bundle=tmp_path, resource=limits)
        )


async def test_a_folder_that_cannot_be_written_to_is_said_on_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any) -> list[str]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    parts = SimpleNamespace(bundle=BundleCache().open(make_entry(tmp_path)))
    monkeypatch.setattr(ApptainerProvider, "_find", lambda *_: parts)
    monkeypatch.setattr(ApptainerProvider, "_command", full)
    with tempfile.TemporaryDirectory(prefix="ax") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        with pytest.raises(ProviderError, match=r"cannot write what sandbox .* needs: .*No space"):
            await ApptainerProvider().create(SandboxConfig(image="x", bundle="y"))
        assert list(Path(short, "agentix").iterdir()) == []


def test_limits_of_a_process_that_has_ended_are_not_said_to_be_kept() -> None:
    gone = ProcessRef(2**31 - 1, 0)
    with pytest.raises(ProviderError, match="cannot see whether the limits are kept"):
        check_limits(SandboxResource(cpu=1), gone)


def test_only_what_apptainer_complains_of_is_quoted() -> None:
    output = "INFO:    one\n\x1b[91mERROR:   two\x1b[0m\n\x1b[31mFATAL:  \x1b[0m the\x07 reason\n"
    assert complaint(output) == "the\\x07 reason"
    assert complaint("INFO:    all is well\nTraceback") is None
    assert explain("FATAL: failed to create user namespace: EPERM") is not None


def test_a_bundle_without_a_shell_of_its_own_is_refused(tmp_path: Path) -> None:
    bundle = BundleCache().open(make_entry(tmp_path, bootstrap="#!/bin/sh\n"))
    with pytest.raises(BundleError, match="starts in a way"):
        shell_of(bundle)


HARD = {
    "PLAIN": "x",
    "EMPTY": "",
    "HARD": "a 'b' \"c\" $HOME `id` \\ \n\ttwo",
    "odd.name": "o",
    "-x": "dash",
}


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """The static shell of a bundle, where it is on this machine."""
    try:
        bundle = BundleCache().open(bundle_that_runs("exit", tmp_path))
    except ImagesUnavailable as error:
        pytest.skip(f"task images cannot be made here: {error}")
    return bundle.nix.parent / shell_of(bundle).removeprefix("/")


def start(shell: Path, image: Opened, tmp_path: Path, **environment: str) -> dict[str, str]:
    """Run the script for *image*, and return the environment that it ends in."""
    command = (str(shell), "cat", "/proc/self/environ")
    script = script_for(image, uid=os.getuid(), added={"ADDED": "$1"}, command=command)
    file = written(tmp_path / "start", script.encode())
    output = subprocess.check_output([shell, "sh", file], env=environment)
    assert output.endswith(b"\0")
    return dict(line.split("=", 1) for line in output.decode()[:-1].split("\0"))


def test_the_script_gives_an_oci_image_exactly_its_environment(shell: Path, tmp_path: Path) -> None:
    env = tuple(f"{name}={value}" for name, value in HARD.items())
    folder = tmp_path / "it's new/deep"
    run = RunConfig.model_validate({"Env": env, "WorkingDir": str(folder)})
    found = start(shell, Opened("x", tmp_path, run, None), tmp_path, LEAKED="1", LD_X="1")
    home, path = found.pop("HOME"), found.pop("PATH")
    assert found == HARD | {"ADDED": "$1"}
    assert home
    assert path.startswith("/usr/local/sbin:")
    assert folder.is_dir()


def test_the_script_keeps_what_a_scripted_image_has_set_and_nothing_of_apptainers(
    shell: Path, tmp_path: Path
) -> None:
    image = Opened("x", tmp_path, RunConfig(), None, scripted=True)
    theirs = {"OWN": "its `own`\nvalue", "PATH": "/own/bin"}
    apptainers = {
        "APPTAINER_NAME": "x",
        "SINGULARITY_BIND": "",
        "LANG": "C",
        "LD_LIBRARY_PATH": "/.singularity.d/libs",
        "PROMPT_COMMAND": "PS1=1",
        "PS1": "Apptainer> ",
        "TERM": "xterm",
    }
    found = start(shell, image, tmp_path, **theirs, **apptainers)
    assert found.pop("HOME")
    assert found == theirs | {"ADDED": "$1"}
    set_by_both = apptainers | {"LD_LIBRARY_PATH": "/own/lib:/.singularity.d/libs", "LANG": "de"}
    found = start(shell, image, tmp_path, **theirs, **set_by_both)
    assert (found["LD_LIBRARY_PATH"], found["LANG"]) == ("/own/lib", "de")


def options(config: dict[str, Any], tmp_path: Path) -> list[str]:
    folder = RuntimeFolder.create("apptainer")
    try:
        return options_for(
            Opened("x", tmp_path, RunConfig(), None),
            bundle=BundleCache().open(make_entry(tmp_path / 'a "cache", : of bundles')),
            folder=folder,
            limits=None,
            config=ApptainerProviderConfig(**config),
        )
    finally:
        folder.remove()


@pytest.mark.parametrize("network", ["none", "host"])
def test_nothing_of_the_host_is_mounted_but_the_bundle_and_the_sockets_folder(
    network: str, tmp_path: Path
) -> None:
    given = options({"network": network}, tmp_path)
    words = (word for flag, word in pairwise(given) if flag == "--mount")
    mounted = [next(csv.reader([word])) for word in words]
    sources = {fields[1].removeprefix("src=") for fields in mounted}
    outside = {source for source in sources if not source.startswith(("/proc/", "/dev/null"))}
    assert len(outside) == 2
    assert any('a "cache", : of bundles' in source for source in outside)
    bundle = next(fields for fields in mounted if fields[2] == "dst=/nix")
    assert bundle[-1] == "ro"
    assert {"--cleanenv", "--contain", "--no-home", "--pid", "--no-eval"} <= set(given)
    assert ("--net" in given) is (network == "none")
