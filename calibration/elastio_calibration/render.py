"""Render forecasts and candidates as tables, CSV and JSON. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elastio.units import GB
from elastio_calibration.optimum import Candidate
from elastio_calibration.predict import Forecast, Interval


def row(forecast: Forecast, currency: str) -> dict[str, Any]:
    """One set-up as a flat row; the keys are stable."""
    time, spent, money, last = forecast.completion_s, forecast.agbs, forecast.cost, forecast.checkpoints[-1]
    return {
        "setup": forecast.setup.value,
        "completion_s": round(time.value, 3),
        "completion_low_s": _rounded(time.low),
        "completion_high_s": _rounded(time.high),
        "agbs": round(spent.value, 3),
        "agbs_low": _rounded(spent.low),
        "agbs_high": _rounded(spent.high),
        "cost": None if money is None else round(money.value, 6),
        "cost_low": None if money is None else _rounded(money.low, 6),
        "cost_high": None if money is None else _rounded(money.high, 6),
        "currency": currency if money is not None else "",
        "checkpoint_cache_gb": round(last.cache_bytes / GB, 4),
        "checkpoint_mb_s": round(last.throughput_mb_s, 3),
        "checkpoint_held_s": round(last.held_s, 3),
    }


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def to_json(document: Mapping[str, Any]) -> str:
    """One JSON document."""
    return json.dumps(document, indent=2, allow_nan=False)


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """One CSV table with a header."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def forecasts_text(forecasts: Sequence[Forecast], currency: str) -> str:
    """A table for a terminal, with completion relative to static-fast and cost to static-slow, and the notes."""
    fast = next(f for f in forecasts if f.setup == "static-fast")
    slow = next(f for f in forecasts if f.setup == "static-slow")
    lines = [f"{'':12} {'completion s':>24} {'':>8} {'AGBs':>30} {'':>8} {'cost':>30}"]
    for f in forecasts:
        later = f.completion_s.value / fast.completion_s.value - 1
        dearer = f.agbs.value / slow.agbs.value - 1
        times, spent = interval(f.completion_s, 1), interval(f.agbs, 0)
        lines.append(
            f"{f.setup:12} {times:>24} {later:>+8.1%} {spent:>30} {dearer:>+8.1%} {_money(f.cost, currency):>30}"
        )
    adaptive = forecasts[-1]
    sizes = [d.cache_bytes / GB for d in (*([adaptive.initial] if adaptive.initial else []), *adaptive.checkpoints)]
    lines += ["", "Percentages: completion relative to static-fast, AGBs to static-slow."]
    lines.append(f"Sizes of the caches that adaptive buys, in GB: {_shortened([f'{s:.3g}' for s in sizes])}.")
    if adaptive.completion_s.low is None:
        lines.append("No interval, because nothing was repeated: calibrate with --repeats 2 or more.")
    return "\n".join([*lines, *notes(forecasts)])


def notes(forecasts: Iterable[Forecast]) -> list[str]:
    """The notes of all forecasts, each once."""
    return list(dict.fromkeys(note for f in forecasts for note in f.notes))


def notes_by(what: str, swept: Sequence[tuple[float, Sequence[Forecast]]]) -> list[str]:
    """The notes over values of `what`: each once, with the values that it applies to, unless it applies to all."""
    about: dict[str, list[str]] = {}
    for value, forecasts in swept:
        for note in notes(forecasts):
            about.setdefault(note, []).append(f"{value:.4g}")
    every = sum(bool(forecasts) for _, forecasts in swept)
    return [note if len(values) == every else f"{what}{_shortened(values)}: {note}" for note, values in about.items()]


def _money(cost: Interval | None, currency: str) -> str:
    return "-" if cost is None else f"{interval(cost, 4)} {currency}"


def _shortened(sizes: list[str], most: int = 6) -> str:
    return ", ".join(sizes) if len(sizes) <= most else f"{', '.join(sizes[:most])}, ... {sizes[-1]}"


def interval(found: Interval, digits: int) -> str:
    """`1213.5 (1210.4..1216.6)`."""
    if found.low is None or found.high is None:
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} ({found.low:.{digits}f}..{found.high:.{digits}f})"


def candidate_row(candidate: Candidate, fast: Forecast, currency: str, *, chosen: bool) -> dict[str, Any]:
    """One point of the trade-off curve, relative to static-fast as in the published figures."""
    forecast = candidate.forecast
    return {
        "cache_gb": round(candidate.cache_bytes / GB, 4),
        "cache_mb_s": candidate.cache_mb_s,
        "chosen": chosen,
        "completion_of_fast": round(forecast.completion_s.value / fast.completion_s.value, 5),
        "agbs_of_fast": round(forecast.agbs.value / fast.agbs.value, 5),
        **row(forecast, currency),
    }


def candidates_text(rows: Sequence[dict[str, Any]]) -> str:
    """The trade-off curve as a table; `>` marks the recommended size."""
    heads = ("cache GB", "MB/s", "completion s", "of fast", "AGBs", "of fast", "cost")
    lines = ["  " + " ".join(f"{h:>{w}}" for h, w in zip(heads, (9, 7, 13, 8, 12, 8, 14), strict=True))]
    for r in rows:
        money = "-" if r["cost"] is None else f"{r['cost']:.4f} {r['currency']}"
        lines.append(
            f"{'>' if r['chosen'] else ' '} {r['cache_gb']:>9.3g} {r['cache_mb_s']:>7.4g} {r['completion_s']:>13.1f} "
            f"{r['completion_of_fast']:>8.3f} {r['agbs']:>12.0f} {r['agbs_of_fast']:>8.3f} {money:>14}"
        )
    return "\n".join(lines)


def sweep_text(symbol: str, swept: Iterable[tuple[float, Iterable[Forecast]]], currency: str) -> str:
    """Completion time, AGBs and cost of the three set-ups for each value, with their intervals."""
    lines = [f"{symbol:>10} {'':12} {'completion s':>24} {'AGBs':>30} {'cost':>30}"]
    for value, forecasts in swept:
        for f in forecasts:
            times, spent = interval(f.completion_s, 1), interval(f.agbs, 0)
            lines.append(f"{value:>10g} {f.setup:12} {times:>24} {spent:>30} {_money(f.cost, currency):>30}")
    return "\n".join(lines)
