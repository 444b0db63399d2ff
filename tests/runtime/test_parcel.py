"""A parcel is sealed although the kernel, or somebody else, holds a page of it for a moment."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from agentix_runtime.parcel import Parcel


def test_it_is_sealed_when_a_page_that_is_held_is_let_go_of() -> None:
    reader, writer = os.pipe()
    parcel = Parcel.empty()
    parcel.write(b"x" * 300_000)
    os.splice(parcel.fd, writer, 4096, offset_src=0)  # the pipe holds the page itself
    letting_go = threading.Timer(0.5, os.read, (reader, 4096))
    letting_go.start()
    try:
        parcel.seal()
        with pytest.raises(PermissionError):
            os.write(parcel.fd, b"y")
    finally:
        letting_go.join()
        for descriptor in (reader, writer):
            os.close(descriptor)
        parcel.close()


def test_a_page_that_stays_held_is_an_error_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentix_runtime.parcel._ATTEMPTS", 1)
    reader, writer = os.pipe()
    parcel = Parcel.empty()
    parcel.write(b"x" * 4096)
    os.splice(parcel.fd, writer, 4096, offset_src=0)
    try:
        with pytest.raises(OSError, match="busy") as caught:
            parcel.seal()
        assert caught.value.errno == errno.EBUSY
    finally:
        for descriptor in (reader, writer):
            os.close(descriptor)
        parcel.close()
