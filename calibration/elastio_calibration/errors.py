"""What calibration and prediction refuse, each in one sentence with a way out."""

from __future__ import annotations

from elastio.errors import ElastioError


class CalibrationError(ElastioError):
    """A measurement, a record or a profile cannot be used as it is."""


class OutOfRangeError(CalibrationError):
    """The question lies outside what was measured: it would be extrapolation."""


class InfeasibleError(CalibrationError):
    """No cache size that was calibrated meets the wish."""
