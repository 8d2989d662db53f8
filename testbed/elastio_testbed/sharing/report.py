"""What two applications got of a device, as tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elastio_testbed.sharing.controls import NONE, SHARES, STRICT
from elastio_testbed.sharing.patterns import PUBLISHED
from elastio_testbed.sharing.turns import turn_of_json
from elastio_testbed.sharing.two_to_one import SLOW
from elastio_testbed.tables import Table

DASH = "-"


def throughputs(document: Mapping[str, Any]) -> list[Table]:
    """For each state what both applications got by pattern and control, beside what was published."""
    turns = [turn_of_json(each) for each in document["turns"]]
    controls = tuple(dict.fromkeys(turn.control for turn in turns))
    found = []
    for state in dict.fromkeys(turn.state for turn in turns):
        names = [turn.pattern for turn in turns if turn.state == state and turn.control == controls[0]]
        by = {c: [_got(t.mb_s) for t in turns if t.state == state and t.control == c] for c in controls}
        rows = tuple(
            (name, *(by[c][n] if n < len(by[c]) else DASH for c in controls), *_published(name, state))
            for n, name in enumerate(names)
        )
        heads = ("pattern", *controls, *((f"published: {c}" for c in (NONE, STRICT, SHARES)) if state == SLOW else ()))
        note = "First and second application in MB/s, and their ratio; patterns in the order in which they ran."
        found.append(Table(f"Throughput, {state}", heads, rows, note))
    return found


def _published(name: str, state: str) -> Sequence[str]:
    if state != SLOW:
        return ()
    known = PUBLISHED[name]
    return tuple(map(_got, (known.none, known.strict, known.shares)))


def _got(mb_s: tuple[float, float]) -> str:
    first, second = mb_s
    return f"{first:.1f} + {second:.1f} ({first / second:.2f})" if second else f"{first:.1f} + {second:.1f}"
