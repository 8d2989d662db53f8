"""The durations of the transitions."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass

# The 99th percentile of a standard normal distribution.
_Z_P99 = 2.326


@dataclass(frozen=True)
class Delay:
    """A log-normal duration, given by its median and 99th percentile in seconds."""

    median_s: float
    p99_s: float

    def mean_s(self) -> float:
        """The expected duration in seconds."""
        sigma = math.log(self.p99_s / self.median_s) / _Z_P99
        return self.median_s * math.exp(sigma**2 / 2)

    def draw(self, rng: random.Random) -> float:
        """One duration in seconds."""
        spread: float = (self.p99_s / self.median_s) ** (rng.gauss(0, 1) / _Z_P99)
        return self.median_s * spread


# Create and attach: measured by the authors of the EBS CSI driver, documented in its cloud.go. Detach,
# delete and the eventual consistency after a create ("visible") are not published; similar values were chosen.
DEFAULT_DELAYS: Mapping[str, Delay] = {
    "create": Delay(1.5, 4),
    "attach": Delay(2, 4),
    "detach": Delay(2, 4),
    "delete": Delay(1, 5),
    "visible": Delay(0.1, 1),
}


class Latency:
    """Delays by transition, all multiplied by `scale`; with 0 each transition is immediate, but still asynchronous.

    Both may be changed at run time from any thread.
    """

    def __init__(self, seed: int = 1, scale: float = 1.0) -> None:
        self._lock = threading.Lock()
        self._rng = random.Random(seed)
        self._delays = dict(DEFAULT_DELAYS)
        self.scale = scale

    def set(self, transition: str, median_s: float, p99_s: float) -> None:
        """Change the delay of one transition."""
        with self._lock:
            self._delays[transition] = Delay(median_s, p99_s)

    def draw(self, transition: str) -> float:
        """The duration of the next `transition` in seconds."""
        with self._lock:
            return self._delays[transition].draw(self._rng) * self.scale
