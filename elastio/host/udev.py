"""Kernel events about block devices. They only wake the agent: a scan then shows what has happened."""

from __future__ import annotations

import logging

import pyudev

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs

_log = logging.getLogger(__name__)


class BlockEvents:
    """Readable (`fileno`) when a block device was added, removed or changed."""

    def __init__(self) -> None:
        # The kernel's events, not udev's: they come before udev's rules have run, and need no udevd.
        self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        self._monitor.filter_by(subsystem="block")
        self._monitor.start()

    def fileno(self) -> int:
        return int(self._monitor.fileno())

    def drain(self) -> bool:
        """Take every waiting event; whether there was one."""
        has_any = False
        while self._monitor.poll(timeout=0) is not None:
            has_any = True
        return has_any


def show_to_systemd(sysfs: Sysfs) -> None:
    """Trigger udev's rules for every adaptive device and its partitions. Takes no lock of bcache; logs failures.

    As at a boot: LVM activates nothing because of a change (69-lvm.rules).
    """
    for disk in sysfs.names("sys/block"):
        if not disk.startswith("bcache"):
            continue
        inside = f"sys/block/{disk}"
        parts = [f"{inside}/{n}" for n in sysfs.names(inside) if sysfs.exists(f"{inside}/{n}/partition")]
        for directory in (inside, *parts):
            try:
                sysfs.write(f"{directory}/uevent", "add")
            except HostError as error:
                _log.warning("cannot trigger udev for %s: %s", directory, error)
