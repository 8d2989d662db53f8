"""The disks of a machine and their places: slots or ports."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

from elastio_testbed.hypervisor.disk import Disk
from elastio_testbed.hypervisor.errors import HypervisorError

Place = TypeVar("Place")


class PluggedDisks(Generic[Place]):
    """The table of the plugged disks, kept while the machine is off, too. Calls may come from several threads.

    A *dead* disk was pulled, and the guest still has its device. A *pulled* one was dead when the machine ended: it is
    plugged no more, but its caller has not unplugged it yet.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._next = 0
        self._disks: dict[str, tuple[Disk, Place]] = {}
        self._dead: set[str] = set()
        self._pulled: set[str] = set()
        self._lock = threading.RLock()

    def serials(self) -> tuple[str, ...]:
        """In the order of plugging."""
        with self._lock:
            return tuple(self._disks)

    def entries(self) -> list[tuple[Disk, Place]]:
        with self._lock:
            return list(self._disks.values())

    def entry(self, serial: str) -> tuple[Disk, Place]:
        """Raises HypervisorError for a disk that is not plugged."""
        with self._lock:
            if serial not in self._disks:
                raise HypervisorError(f"disk {serial} is not plugged")
            return self._disks[serial]

    def is_plugged(self, disk: Disk) -> bool:
        """Whether the disk is plugged. Raises HypervisorError if its serial is, with another file."""
        with self._lock:
            known = self._disks.get(disk.serial)
            if known is not None and known[0].path != disk.path:
                raise HypervisorError(f"disk {disk.serial} is already plugged with {known[0].path}")
            return known is not None

    def free_place(self) -> Place:
        """A place that no disk has, in turn. Raises HypervisorError."""
        with self._lock:
            taken = [place for _, place in self._disks.values()]
            for _ in self._places:
                place, self._next = self._places[self._next], (self._next + 1) % len(self._places)
                if place not in taken:
                    return place
        raise HypervisorError(f"all {len(self._places)} places for disks are in use")

    def add(self, disk: Disk, place: Place) -> None:
        """Enter a disk, or new limits of one."""
        with self._lock:
            self._disks[disk.serial] = (disk, place)
            self._pulled.discard(disk.serial)

    def remove(self, serial: str) -> None:
        with self._lock:
            self._disks.pop(serial, None)
            self._dead.discard(serial)

    def is_dead(self, serial: str) -> bool:
        with self._lock:
            return serial in self._dead

    def mark_dead(self, serial: str) -> None:
        with self._lock:
            self._dead.add(serial)

    def mark_alive(self, serial: str) -> None:
        """The guest has no device of the dead disk any more."""
        with self._lock:
            self._dead.discard(serial)

    def take_pulled(self, serial: str) -> bool:
        """Whether the disk was pulled before the machine ended; it is forgotten then."""
        with self._lock:
            was_pulled = serial in self._pulled
            self._pulled.discard(serial)
            return was_pulled

    def machine_ended(self) -> None:
        """Forget the dead disks."""
        with self._lock:
            self._pulled |= self._dead & set(self._disks)
            for serial in self._dead:
                self._disks.pop(serial, None)
            self._dead.clear()
