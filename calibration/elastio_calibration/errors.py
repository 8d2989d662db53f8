"""Errors of calibration and prediction. Each message is one sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

from elastio.errors import ElastioError


class CalibrationError(ElastioError):
    """A measurement, a record or a profile cannot be used."""


class OutOfRangeError(CalibrationError):
    """The request lies beyond what was measured: it would be extrapolation."""


class InfeasibleError(CalibrationError):
    """No calibrated cache size meets the goal."""


def unreadable(path: Path, error: OSError | UnicodeDecodeError) -> str:
    """The sentence for a file that cannot be read: the number of an error, or the name of a codec, helps nobody."""
    if isinstance(error, UnicodeDecodeError):
        return f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8"
    return f"{path} cannot be read: {error.strerror or error}"
