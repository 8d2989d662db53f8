"""What the hypervisor of this machine gave to others."""

from __future__ import annotations

import pytest

from elastio_testbed.stolen import ProcessorTime, processor_time


@pytest.mark.parametrize(
    ("after", "share"),
    [
        (ProcessorTime(40.0, 5.0), 0.0),
        (ProcessorTime(49.0, 6.0), 0.1),
        (ProcessorTime(40.0, 7.0), 1.0),
        (ProcessorTime(41.0, 5.0), 0.0),
    ],
)
def test_is_a_share_of_what_was_wanted(after: ProcessorTime, share: float) -> None:
    assert after.stolen_since(ProcessorTime(40.0, 5.0)) == pytest.approx(share)


def test_the_kernels_count_never_goes_back() -> None:
    before = processor_time()
    after = processor_time()
    assert after.used >= before.used > 0
    assert after.stolen >= before.stolen >= 0
