"""Predict over a range of values of one quantity. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from elastio_calibration.application import SYMBOLS, Application, varied
from elastio_calibration.errors import CalibrationError
from elastio_calibration.predict import CacheSizes, Forecast, Predictor
from elastio_calibration.schedule import size_bytes

MOST_VALUES = 1000


@dataclass(frozen=True, slots=True)
class Sweep:
    """The values of `symbol`. `M` is the cache of the checkpoints, in GB."""

    symbol: str
    values: tuple[float, ...]


def parse(text: str) -> Sweep:
    """`Sc=2..12`, `Sc=2..12/0.5`, `M=4,6,8`. Raises CalibrationError."""
    symbol, equals, rest = text.partition("=")
    if not equals or (symbol != "M" and symbol not in SYMBOLS and symbol not in SYMBOLS.values()):
        raise CalibrationError(
            f"{text!r} is not a sweep: write Sc=2..12, M=4,6,8 or K=1..5, with one of {', '.join(SYMBOLS)}, M"
        )
    try:
        return Sweep(symbol, _values(rest))
    except (ValueError, OverflowError) as error:
        raise CalibrationError(f"{text!r} is not a sweep: {error}") from error


def _values(text: str) -> tuple[float, ...]:
    if ".." not in text:
        return tuple(_finite(v) for v in text.split(","))
    first, _, rest = text.partition("..")
    last, _, step = rest.partition("/")
    begin, end, by = _finite(first), _finite(last), _finite(step or "1")
    if by <= 0 or end < begin:
        raise ValueError("the first value must be the smallest and the step above 0")
    count = int((end - begin) / by + 1e-9) + 1
    if count > MOST_VALUES:
        raise ValueError(f"{count} values are more than {MOST_VALUES}")
    return tuple(begin + by * n for n in range(count))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


@dataclass(frozen=True, slots=True)
class Step:
    """One value with its forecasts; `refusal`: why it cannot be predicted."""

    value: float
    forecasts: tuple[Forecast, ...]
    refusal: str = ""


def run(predictor: Predictor, application: Application, sizes: CacheSizes, sweep: Sweep) -> tuple[Step, ...]:
    """Raises CalibrationError only where no value can be predicted."""
    steps = []
    for value in sweep.values:
        try:
            if sweep.symbol == "M":
                asked, bought = application, replace(sizes, checkpoint_bytes=size_bytes(value))
            else:
                asked, bought = varied(application, sweep.symbol, value), sizes
            steps.append(Step(value, predictor.all_setups(asked, bought)))
        except CalibrationError as error:
            steps.append(Step(value, (), str(error)))
    if not any(step.forecasts for step in steps):
        raise CalibrationError(steps[0].refusal)
    return tuple(steps)
