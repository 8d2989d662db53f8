"""Notifies the service manager: READY, STATUS, WATCHDOG, STOPPING. Protocol: sd_notify(3)."""

from __future__ import annotations

import os
import socket


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
