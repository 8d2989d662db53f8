"""Types of numeric options."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A range without `inf` and `nan`, which click's comparisons accept."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


ABOVE_0 = Finite(min=0, min_open=True)
AT_LEAST_0 = Finite(min=0)
