"""Changes what a composed device consists of under the filesystem that is mounted on it: writes and removes tombstones.

Theory of operation. The first sectors of the volume move to the head and back (`tombstone`), and the table of the
composed device changes with it. device-mapper keeps all requests waiting meanwhile (`mapper`): for the time of some
small writes, after what is in flight has ended.

A process that is killed in between leaves the device suspended. It has a lock, which the kernel releases when its last
write has ended. Whoever finds the device suspended takes that lock, reads the first sector of the volume, loads
the table that this asks for, and resumes: the guard of the process, which also kills one that hangs; `elastio free`,
before the agent starts and after it has ended; and whoever takes the lock for any adopted volume. Whoever cannot
read the sector does not resume: requests wait, and nothing is lost.

Nothing of bcache is read meanwhile. Its files take its global lock, whose owner may be waiting for a write to the
suspended device.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from elastio.core.model import CacheState
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import composed, mapper, superblock
from elastio.host.composed import Parts
from elastio.host.guard import HELD_S, Guard
from elastio.host.heads import Head
from elastio.host.machine import as_io_flusher
from elastio.host.sysfs import Sysfs, Wait
from elastio.host.tombstone import SHORT, Pair

_log = logging.getLogger(__name__)

LOCK_S = 5.0


def has_tombstone(sysfs: Sysfs, device: str) -> bool | None:
    """Whether the volume of the composed device `dm-N` has its tombstone; None for any other device, or where it stays.

    By the live table, which shows the saved block then. No disk is read: it may be saturated.
    """
    if not composed.is_composed(sysfs, device):
        return None
    shows_saved = _shows_saved(sysfs, device)
    return None if shows_saved and composed.keeps_tombstone(sysfs, device) else shows_saved


def _shows_saved(sysfs: Sysfs, device: str) -> bool:
    return len(mapper.table(sysfs, composed.mapped_name(sysfs, device))) == len(("content", "saved", "volume"))


def require_tombstone(sysfs: Sysfs, device: str, wait: Wait, number: int = 0) -> None:
    """Before a cache is made. Raises DeviceBusyError while an adopted volume could be mounted without it.

    `number`: that of the tombstone that was written for this cache, or 0. One that is there since an earlier cache gets
    a new one, by which a volume that is reverted in place is told; and as the device may have been formatted since, it
    is looked at again. Nothing is suspended: the device shows the saved piece. Raises HostError, or NotOursError as
    `write_tombstone`.
    """
    if has_tombstone(sysfs, device) is False:
        text = f"{device} could be mounted without its cache: it has no tombstone yet"
        raise DeviceBusyError(text, code="tombstone.missing")
    if not composed.is_composed(sysfs, device):
        return
    with locked(sysfs, wait, LOCK_S):
        settle(sysfs, composed.mapped_name(sysfs, device))
        with _opened(sysfs, device) as (_, pair):
            _require_sound(sysfs, device, pair, is_needed=True)
            if pair.number() != number:
                pair.renew()
                pair.require_unrecognized()


def require_not_overwritten(sysfs: Sysfs, device: str, is_there: Callable[[], bool]) -> None:
    """Raises NotOursError if the saved piece is shown, and the volume has no tombstone: nor has it anything newer then.

    The first sector decides only after an interruption, which `settle` has seen to.
    """
    if composed.is_composed(sysfs, device) and _shows_saved(sysfs, device) and not is_there():
        text = f"the tombstone of the volume below {device} was overwritten: nothing was changed"
        raise NotOursError(text, code="tombstone.overwritten")


def _require_sound(sysfs: Sysfs, device: str, pair: Pair, *, is_needed: bool) -> None:
    """Raises NotOursError for an overwritten tombstone, and for one that is needed and does not cover the contents."""
    require_not_overwritten(sysfs, device, pair.has_tombstone)
    if is_needed:
        pair.require_covered()


def write_tombstone(sysfs: Sysfs, device: str, wait: Wait) -> int:
    """Write the tombstone of the composed device `dm-N` under whatever uses it. Returns its sequence number.

    One that does not cover the contents is removed again. Raises HostError or NotOursError.
    """
    with _suspended(sysfs, device, wait, has_tombstone=True) as pair:
        pair.write()
    try:
        with _opened(sysfs, device, os.O_RDONLY) as (_, pair):
            pair.require_unrecognized()
            return pair.number()
    except NotOursError as error:
        if error.code == SHORT:
            remove_tombstone(sysfs, device, wait)
        raise


def remove_tombstone(sysfs: Sysfs, device: str, wait: Wait) -> None:
    """Take the tombstone back. Raises DeviceBusyError while there is a cache, or bcache's superblock names one."""
    _require_no_cache(sysfs, device)
    with _suspended(sysfs, device, wait, has_tombstone=False) as pair:
        if not superblock.is_without_cache(pair.on_head.read(pair.head.superblock_at)):
            raise DeviceBusyError(f"{device} has a cache: its tombstone stays", code="tombstone.cache")
        pair.remove()


def _require_no_cache(sysfs: Sysfs, device: str) -> None:
    directory = f"sys/block/{device}/bcache"
    if sysfs.read(f"{directory}/state") != CacheState.NO_CACHE or sysfs.link(f"{directory}/cache") is not None:
        raise DeviceBusyError(f"{device} has a cache: its tombstone stays", code="tombstone.cache")


@contextmanager
def _suspended(sysfs: Sysfs, device: str, wait: Wait, *, has_tombstone: bool) -> Iterator[Pair]:
    """Inside, nobody else changes the device, and the table for what is to come is loaded.

    At the end it is resumed with the table that is right; if that fails, the guard tries, once the lock is free.
    """
    if not composed.is_composed(sysfs, device):
        raise NotOursError(f"{device} is no adopted volume: nothing was changed", code="tombstone.none")
    name = composed.mapped_name(sysfs, device)
    guard = Guard(partial(_mended_or_cleared, sysfs, name))
    try:
        with guard.holding(LOCK_S + HELD_S), locked(sysfs, wait, LOCK_S):
            settle(sysfs, name)
            with _opened(sysfs, device) as (parts, pair):
                _require_sound(sysfs, device, pair, is_needed=has_tombstone)
                began = time.monotonic()
                with as_io_flusher():
                    try:
                        mapper.load(sysfs, name, parts.table(has_tombstone=has_tombstone))
                        mapper.suspend(sysfs, name)
                        yield pair
                    finally:
                        _resume(sysfs, parts, pair)
            _log.info("requests to %s waited %.3f s while its first sectors moved", device, time.monotonic() - began)
    finally:
        guard.close()


@contextmanager
def _opened(sysfs: Sysfs, device: str, flags: int = os.O_RDWR) -> Iterator[tuple[Parts, Pair]]:
    parts = composed.parts(sysfs, device)
    with Pair.opened(sysfs, parts.head, parts.volume_device, parts.head_device, flags) as pair:
        yield parts, pair


@contextmanager
def locked(sysfs: Sysfs, wait: Wait, seconds: float) -> Iterator[None]:
    """Inside, nobody else changes adopted volumes, and none of them is suspended. Raises DeviceBusyError, HostError.

    Whoever has left one suspended is dead: it had this lock. The command that would resume it may find the lock taken.
    One whose disk cannot be read stays suspended, and keeps nobody from changing another one.
    """
    with composed.locked(sysfs, wait, seconds):
        for device in composed.all_of(sysfs):
            try:
                settle(sysfs, composed.mapped_name(sysfs, device))
            except HostError as error:
                _log.warning("%s stays suspended: %s", device, error)
        yield


def _at_once(condition: Callable[[], bool], seconds: float) -> bool:
    return condition()


def mend(sysfs: Sysfs, name: str, wait: Wait = _at_once) -> bool:
    """Resume a composed device whose holder died; returns whether it was suspended.

    Raises DeviceBusyError while a holder lives, or its last write has not ended, and HostError.
    """
    if not _is_suspended(sysfs, name):
        return False
    with composed.locked(sysfs, wait, LOCK_S):
        return settle(sysfs, name)


def mend_all(sysfs: Sysfs, wait: Wait = _at_once) -> tuple[str, ...]:
    """`mend` for every composed device; returns those that were suspended. Raises HostError after trying all."""
    found, failed = [], []
    for device in composed.all_of(sysfs):
        try:
            found += [device] if mend(sysfs, composed.mapped_name(sysfs, device), wait) else []
        except HostError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return tuple(found)


def is_suspended(sysfs: Sysfs, head: Head) -> bool:
    return _is_suspended(sysfs, composed.name_of(head))


def settle(sysfs: Sysfs, name: str) -> bool:
    """As `mend`, by whoever has the lock."""
    device = composed.device_of(sysfs, name)
    if device is None or not _is_suspended(sysfs, name):
        return False
    with as_io_flusher(), _opened(sysfs, device) as (parts, pair):
        _resume(sysfs, parts, pair)
    return True


def _mended_or_cleared(sysfs: Sysfs, name: str) -> None:
    """What a guard does. A table that was loaded for nothing must not become the live one by somebody's hand."""
    with composed.locked(sysfs, _at_once, 0.0):
        if not settle(sysfs, name) and composed.device_of(sysfs, name) is not None:
            mapper.clear(sysfs, name)


def _resume(sysfs: Sysfs, parts: Parts, pair: Pair) -> None:
    """Resume with the table that the first sector asks for.

    It is loaded already, but for an interruption. To load one takes memory, and the kernel may have to write to this
    device to get that.
    """
    wanted = parts.table(has_tombstone=pair.completed())
    if (mapper.table(sysfs, parts.name, is_live=False) or mapper.table(sysfs, parts.name)) != wanted:
        mapper.load(sysfs, parts.name, wanted)
    mapper.resume(sysfs, parts.name)


def _is_suspended(sysfs: Sysfs, name: str) -> bool:
    device = composed.device_of(sysfs, name)
    return device is not None and sysfs.read_or(f"sys/block/{device}/dm/suspended", "0") == "1"
