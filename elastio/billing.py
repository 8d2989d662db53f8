"""For how long a cloud bills a volume. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

# From the end of holding to the deletion of the volume, in seconds. Where time is sold in whole steps, a release begins
# earlier: one that takes longer than expected would pay for another step.
RELEASE_S, RELEASE_IN_STEPS_S = 15.0, 60.0


@dataclass(frozen=True, slots=True)
class Billing:
    """For how long a volume is billed: for at least `minimum_s`, and in whole steps of `step_s` (0: to the instant)."""

    minimum_s: float = 0.0
    step_s: float = 0.0

    def billed_s(self, lasted_s: float) -> float:
        """The seconds that are billed for a volume that existed for `lasted_s`."""
        least_s = max(lasted_s, self.minimum_s)
        return math.ceil(least_s / self.step_s) * self.step_s if self.step_s else least_s

    @property
    def release_s(self) -> float:
        """How long before the end of a paid time its release begins, in seconds."""
        return RELEASE_IN_STEPS_S if self.step_s else RELEASE_S


TO_THE_INSTANT = Billing()
