"""The durations of the transitions."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from elastio_testbed.ec2.errors import SettingError

# The 99th percentile of a standard normal distribution.
_Z_P99 = 2.326


@dataclass(frozen=True)
class Delay:
    """A log-normal duration, given by its median and 99th percentile in seconds."""

    median_s: float
    p99_s: float

    def __post_init__(self) -> None:
        if not 0 < self.median_s <= self.p99_s < math.inf:
            raise SettingError(f"a delay needs 0 < median <= p99, got {self.median_s} and {self.p99_s} s")

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
    """Delays by transition, all multiplied by `scale`. They may be changed at run time from any thread."""

    def __init__(self, seed: int = 1, scale: float = 1.0) -> None:
        self._lock = threading.Lock()
        self._rng = random.Random(seed)
        self._delays = dict(DEFAULT_DELAYS)
        self._scale = 1.0
        self.scale = scale

    @property
    def scale(self) -> float:
        """The factor for every delay; 0 makes each transition immediate, but still asynchronous."""
        return self._scale

    @scale.setter
    def scale(self, factor: float) -> None:
        if not 0 <= factor < math.inf:
            raise SettingError(f"latency_scale must be 0 or more, got {factor}")
        self._scale = float(factor)

    def set(self, transition: str, median_s: float, p99_s: float) -> None:
        """Change the delay of one transition. Raises SettingError for an unknown transition and for invalid numbers."""
        if transition not in DEFAULT_DELAYS:
            raise SettingError(f"no transition {transition!r}; the transitions are {', '.join(DEFAULT_DELAYS)}")
        with self._lock:
            self._delays[transition] = Delay(median_s, p99_s)

    def draw(self, transition: str) -> float:
        """The duration of the next `transition` in seconds."""
        with self._lock:
            return self._delays[transition].draw(self._rng) * self._scale
