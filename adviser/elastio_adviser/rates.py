"""Mean throughput over time, and the error of a file that does not tell it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.errors import ElastioError


class TraceError(ElastioError):
    """A trace cannot be read, or is too long to be replayed. `code` names what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Mean throughput of the device over `seconds` from `at_s` (since the first line)."""

    at_s: float
    seconds: float
    read_mb_s: float
    write_mb_s: float

    @property
    def total_mb_s(self) -> float:
        return self.read_mb_s + self.write_mb_s


@dataclass(frozen=True, slots=True)
class Trace:
    """What a file recorded. `said`: sentences about what is assumed."""

    rates: tuple[Rate, ...]
    said: tuple[str, ...] = ()


def number(text: str, name: str, line: int) -> float:
    """A time or a rate. Raises TraceError."""
    try:
        value = float(text)
    except ValueError:
        raise TraceError(f"{name}, line {line}: {text!r} is not a number", code="number") from None
    if not 0 <= value < 1e12:
        raise TraceError(
            f"{name}, line {line}: {text} is out of range: times and rates are from 0 to 1e12", code="range"
        )
    return value
