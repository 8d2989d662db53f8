"""Kernel events about block devices, as a wake-up: what happened is then looked up, never believed."""

from __future__ import annotations

import logging

import pyudev

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs

_log = logging.getLogger(__name__)


class BlockEvents:
    """Readable (`fileno`) when a block device came, went or changed."""

    def __init__(self) -> None:
        # The kernel's own events, not udev's: they come before udev's rules have run and need no udevd.
        self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        self._monitor.filter_by(subsystem="block")
        self._monitor.start()

    def fileno(self) -> int:
        return int(self._monitor.fileno())

    def drain(self) -> int:
        """Take every waiting event; returns how many there were."""
        count = 0
        while self._monitor.poll(timeout=0) is not None:
            count += 1
        return count


def show_to_systemd(sysfs: Sysfs) -> None:
    """Let udev's rules judge every adaptive device and its partitions anew. Takes no lock of bcache.

    A failure is logged.
    """
    for disk in sysfs.names("sys/block"):
        if not disk.startswith("bcache"):
            continue
        inside = f"sys/block/{disk}"
        parts = [f"{inside}/{n}" for n in sysfs.names(inside) if sysfs.exists(f"{inside}/{n}/partition")]
        for directory in (inside, *parts):
            try:
                sysfs.write(f"{directory}/uevent", "change")
            except HostError as error:
                _log.warning("udev was not told about %s: %s", directory, error)
