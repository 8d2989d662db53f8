"""Numbers of the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A range that leaves out `inf` and `nan`, which no comparison with its ends refuses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


ABOVE_0 = Finite(min=0, min_open=True)
AT_LEAST_0 = Finite(min=0)
