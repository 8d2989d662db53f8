"""`pgbench`: a PostgreSQL beside a sequential writer: what its transactions take, and how many there are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from elastio_testbed.bars import Bar
from elastio_testbed.sharing.controls import NONE, SHARES
from elastio_testbed.tables import Table

DASH = "-"
# Of each turn: what limits need to settle, at the begin.
SETTLE_S = 5.0
# The 95th percentile over that alone, and transactions a second over those alone.
MOST_TIMES, LEAST_TPS = 3.0, 0.7


@dataclass(frozen=True, slots=True)
class Transactions:
    """What pgbench saw under one control. `writer_mb_s`: what was written beside it; None: it was alone.

    `p95_ms` None: no transaction ended. In milliseconds from the begin of a transaction until its commit is durable.
    """

    control: str
    writer_mb_s: float | None
    tps: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None

    @property
    def is_alone(self) -> bool:
        return self.writer_mb_s is None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Turn:
    """A part of a run. `took_ms`: of each transaction of the `counted_s` seconds in which limits had settled."""

    control: str
    writer_mb_s: float | None
    counted_s: float
    took_ms: tuple[float, ...]


def of_log(lines: Iterable[str], seconds: float, control: str, writer_mb_s: float | None) -> Turn:
    """From the log of pgbench, of `seconds`: a line has client, number, microseconds, script, end in s and in us."""
    logged = [line.split() for line in lines]
    ended = [(float(words[4]) + float(words[5]) / 1e6, float(words[2]) / 1000) for words in logged]
    first = min((end for end, _ in ended), default=0.0)
    settled = tuple(ms for end, ms in ended if end >= first + SETTLE_S)
    return Turn(control, writer_mb_s, seconds - SETTLE_S, settled)


def runs_of(turns: Sequence[Turn]) -> list[Transactions]:
    """One run for each control, alone and beside the writer, of all its turns."""
    kinds = dict.fromkeys((turn.control, turn.writer_mb_s is None) for turn in turns)
    return [_run([turn for turn in turns if (turn.control, turn.writer_mb_s is None) == kind]) for kind in kinds]


def _run(turns: Sequence[Turn]) -> Transactions:
    written = [turn.writer_mb_s for turn in turns if turn.writer_mb_s is not None]
    took_ms = sorted(ms for turn in turns for ms in turn.took_ms)
    tps = len(took_ms) / sum(turn.counted_s for turn in turns)
    late = (_late(took_ms, percent) for percent in (50, 95, 99))
    return Transactions(turns[0].control, round(fmean(written), 2) if written else None, round(tps, 1), *late)


def _late(settled_ms: Sequence[float], percent: int) -> float | None:
    """This percentile of times in their order; None: there are none."""
    return round(settled_ms[int(percent / 100 * (len(settled_ms) - 1))], 1) if settled_ms else None


def bars(runs: Sequence[Transactions]) -> list[Bar]:
    """What has to be; without control nothing has to."""
    alone = next((run for run in runs if run.is_alone), None)
    shared = next((run for run in runs if run.control == SHARES), None)
    times = tps = None
    if alone is not None and shared is not None:
        times = shared.p95_ms / alone.p95_ms if shared.p95_ms and alone.p95_ms else None
        tps = shared.tps / alone.tps if alone.tps else None
    return [
        Bar("95th percentile of a transaction beside the writer, times that alone", times, most=MOST_TIMES),
        Bar("transactions a second beside the writer, over those alone", tps, least=LEAST_TPS),
    ]


def transactions(document: Mapping[str, Any]) -> tuple[Table, ...]:
    """The table of a stored result."""
    runs = [Transactions(**run) for run in document["runs"]]
    rows = tuple(
        (
            "alone" if run.is_alone else {NONE: "beside the writer, no control"}.get(run.control, "beside it, shares"),
            f"{run.tps:.1f}",
            *(DASH if ms is None else f"{ms:.0f}" for ms in (run.p50_ms, run.p95_ms, run.p99_ms)),
            DASH if run.writer_mb_s is None else f"{run.writer_mb_s:.1f}",
        )
        for run in runs
    )
    heads = ("PostgreSQL", "transactions/s", "median ms", "95 % ms", "99 % ms", "writer MB/s")
    note = (
        f"{document['clients']} clients of pgbench (TPC-B), without the first {SETTLE_S:.0f} s of a turn. The end of a "
        "transaction is a durable commit. The writer writes 1 MiB at a time through the page cache, as fast as it can."
    )
    return (Table("Transactions", heads, rows, note),)
