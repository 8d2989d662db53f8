"""How long a durable write waits for large requests of others, on a model of a disk's queue and of its volume.

The kernel lets as many requests be in flight as the depth says; the next one goes to whoever waits first. The volume
serves what comes first, at a fixed rate; an answer comes some time after. A durable write is one of 4 KiB and a flush,
one after the other. Somebody else has large requests without end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from elastio.host.depth import BACKING_REQUEST_KB, LEAST, LEAST_KB, LEAST_WAIT_S, Bound, Prompt
from elastio.units import KIB, MB

SMALL_BYTES, PAUSE_S, WRITES = 4 * KIB, 0.02, 20


@dataclass(frozen=True)
class Measured:
    """The longest of WRITES durable writes in seconds, and what the others moved over what the volume can move."""

    longest_s: float
    used: float


def measured(mb_s: float, round_trip_s: float, request_kb: int) -> Measured:
    """Of a volume with this rate and time until an answer, with LEAST requests in flight of at most this size."""
    free = deque([0.0] * LEAST)  # when the next requests may begin, the earliest first
    served_at = moved = longest_s = 0.0

    def request(at: float, size_bytes: float) -> float:
        """When a request that is submitted at this time is answered."""
        nonlocal served_at
        served_at = max(at, free.popleft(), served_at) + size_bytes / MB / mb_s
        free.append(served_at + round_trip_s)
        return served_at + round_trip_s

    begun_s, asked_s = 0.0, 0.0
    for _ in range(WRITES):
        for size_bytes in (SMALL_BYTES, 0.0):  # the data, and the flush
            while free[0] < asked_s:
                request(free[0], request_kb * KIB)
                moved += request_kb * KIB
            asked_s = request(asked_s, size_bytes)
        longest_s = max(longest_s, asked_s - begun_s)
        begun_s = asked_s = asked_s + PAUSE_S
    return Measured(longest_s, moved / MB / mb_s / asked_s)


@given(st.floats(5.0, 2000.0), st.floats(5.0, 200.0), st.floats(0.0001, 0.002))
def test_a_durable_write_takes_little_longer_than_a_target_and_the_others_lose_nothing(
    mb_s: float, target_ms: float, round_trip_s: float
) -> None:
    prompt = Prompt(target_ms / 1000, mb_s)
    bound = Bound(BACKING_REQUEST_KB, BACKING_REQUEST_KB).fit(prompt.queue_s * mb_s * MB)
    alone, found = measured(mb_s, round_trip_s, BACKING_REQUEST_KB), measured(mb_s, round_trip_s, bound.now_kb)
    least_s = 2 * LEAST * LEAST_KB * KIB / MB / mb_s
    assert found.longest_s <= 1.5 * max(prompt.target_s, 2 * LEAST_WAIT_S, least_s) + 2 * round_trip_s
    assert found.longest_s <= 1.01 * alone.longest_s
    assert found.used >= 0.95 * alone.used


def test_beside_large_requests_on_a_slow_volume_it_takes_less_than_a_third() -> None:
    bound = Bound(BACKING_REQUEST_KB, BACKING_REQUEST_KB).fit(Prompt(0.02, 16.5).queue_s * 16.5 * MB)
    large, small = measured(16.5, 0.001, BACKING_REQUEST_KB), measured(16.5, 0.001, bound.now_kb)
    print(f"{1000 * large.longest_s:.0f} and {1000 * small.longest_s:.0f} ms")
    assert large.longest_s > 0.1, "in a guest a 99th percentile of 112 ms"
    assert small.longest_s < large.longest_s / 3
