"""A function that may hang in the kernel: its result, its error, or a timeout."""

from __future__ import annotations

import os
import select
import signal

import pytest

from elastio.errors import DeviceBusyError, HostError
from elastio_setup.subprocess_timeout import call_with_timeout
from tests.fixtures.errors import refused


def test_returns_the_result_of_the_child() -> None:
    assert call_with_timeout(lambda: ["answer", os.getpid()], 10)[0] == "answer"
    assert call_with_timeout(os.getpid, 10) != os.getpid()


def test_raises_the_error_of_the_child() -> None:
    def busy() -> None:
        raise DeviceBusyError("vdb is in use")

    with pytest.raises(DeviceBusyError) as raised:
        call_with_timeout(busy, 10)
    assert str(raised.value) == "vdb is in use"


def test_gives_up_on_a_child_that_hangs_and_ends_it() -> None:
    reader, writer = os.pipe()

    def hang() -> None:
        os.close(reader)
        signal.pause()

    with refused(HostError, "child.timeout"):
        call_with_timeout(hang, 0.05)
    os.close(writer)
    assert select.select([reader], [], [], 10)[0]
    assert os.read(reader, 1) == b""  # the child held the other end until it was killed
    os.close(reader)


def test_notices_a_child_that_dies_without_an_answer() -> None:
    with refused(HostError, "child.died"):
        call_with_timeout(lambda: os._exit(1), 10)
