"""systemd: notifications to it (READY, STATUS, WATCHDOG, STOPPING; sd_notify(3)), and when its timers elapse next."""

from __future__ import annotations

import json
import os
import re
import socket

from elastio.errors import HostError
from elastio.host.commands import Run


class Notifier:
    """Sends to $NOTIFY_SOCKET; does nothing without one (when started by hand)."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        env = dict(os.environ) if environment is None else environment
        address = env.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = int(env.get("WATCHDOG_USEC", "0")) / 1e6
        self._last_beat = float("-inf")

    def send(self, *lines: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            try:
                sock.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                return  # the manager is busy or gone: the next message repeats it

    def beat(self, now: float) -> None:
        """Send WATCHDOG=1, at most every third of the watchdog's time-out."""
        if self._watchdog_s and now - self._last_beat >= self._watchdog_s / 3:
            self._last_beat = now
            self.send("WATCHDOG=1")


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
