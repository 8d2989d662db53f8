"""When a systemd timer elapses next."""

from __future__ import annotations

import json
import re

from elastio.errors import HostError
from elastio.host.commands import Run

US = 1_000_000
# Characters of a unit's name without those of a pattern.
NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+\.timer")


def next_elapse(unit: str, run: Run) -> float | None:
    """Seconds since the epoch, delay by `RandomizedDelaySec=` included; None: not before its service has ended.

    From `systemctl list-timers --output=json` (systemd 246 or newer), in which `next` is in microseconds of the
    realtime clock for every kind of timer, and null or 0 for one that waits for nothing. Raises HostError if there is
    no such timer.
    """
    said = run(["systemctl", "list-timers", "--all", "--output=json", "--", unit], timeout_s=10.0)
    try:
        rows = json.loads(said or "[]")
        found = [row["next"] for row in rows if row["unit"] == unit]
        times = [None if at is None else int(at) / US for at in found]
    except (ValueError, TypeError, KeyError) as error:
        raise HostError(f"systemctl did not list timers as JSON: {error}", code="program.output") from error
    if not times:
        raise HostError(f"there is no loaded timer {unit}: `systemctl list-timers --all` lists them", code="timer.none")
    return times[0] or None
