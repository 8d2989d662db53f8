"""What of the status document is more than a value of the core."""

from __future__ import annotations

import pytest

from elastio.agent.status_builder import is_safe_to_copy
from elastio.core.cycle import Timestamps
from elastio.core.model import CacheState
from tests.values import NOW, backing, cached, cycle, host


@pytest.mark.parametrize(
    ("view", "of", "safe"),
    [
        (backing(), None, True),
        (backing(running=False), None, False),
        (backing(state=CacheState.CLEAN), None, False),
        (cached(), cycle(), False),
        (cached(state=CacheState.CLEAN, dirty_bytes=0), cycle(), False),
        (backing(), cycle(), False),  # "no cache", but not yet durably so
        (backing(), cycle(times=Timestamps(released=NOW)), True),
        (backing(), cycle(cache_set=None), True),
        (backing(has_tombstone=True), None, False),  # a copy would lack its first block
        (backing(has_tombstone=False), None, True),
    ],
)
def test_only_a_volume_that_is_durably_without_a_cache_is_safe_to_copy(view: object, of: object, safe: bool) -> None:
    assert is_safe_to_copy(of, host(view)) is safe  # type: ignore[arg-type]
    assert not is_safe_to_copy(of, None)  # type: ignore[arg-type]
