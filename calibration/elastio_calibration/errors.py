"""Errors of calibration and prediction. Each message is one sentence that says what to do."""

from __future__ import annotations

from elastio.errors import ElastioError


class CalibrationError(ElastioError):
    """A measurement, a record or a profile cannot be used."""


class OutOfRangeError(CalibrationError):
    """The request lies beyond what was measured: it would be extrapolation."""


class InfeasibleError(CalibrationError):
    """No calibrated cache size meets the goal."""
