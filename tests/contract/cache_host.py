"""What the agent may rely on from an engine: the contract of `ports.CacheHost`, one life of a cache, step by step.

A step calls the engine once and says what comes of it: the effect, or the class and code of the refusal, or what `scan`
shows then. Each engine gives all the answers of STEPS: bcache in a guest, and its simulation, which may refuse no less
than the kernel does. The steps cover attach, pace, flush, bypass, detach and release, and what is refused in each of
these states. That an engine keeps what an fsync has acknowledged, power cuts prove (`elastio-testbed
cuts`): bcache does, dm-writecache does not.

This file needs only the agent's modules. In a guest it is a program: `cache_host.py BACKING_UUID SERIAL SIZE_BYTES`
prints the answers as JSON.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol

from elastio.core.model import BackingView, CacheSetUuid, CacheState, Serial
from elastio.errors import HostError
from elastio.host.bcache import BcacheHost
from elastio.ports import CacheHost

MISSING = Serial("vol0missing000000000")
OTHER = CacheSetUuid("00000000-0000-0000-0000-000000000000")
NOT_THIS_SIZE = 12345 * 512
LONG_S = 60.0


class Bench(Protocol):
    """An engine in front of a blank device that runs without a cache, and one blank disk."""

    host: CacheHost
    serial: Serial
    size_bytes: int

    def write(self, mib: int) -> None:
        """Write to the device; each write is acknowledged."""

    def wait(self, is_so: Callable[[BackingView], bool]) -> None:
        """Until `scan` shows it. Raises TimeoutError."""


def backing(bench: Bench) -> BackingView:
    shown = bench.host.scan((bench.serial,)).backing
    if shown is None:
        raise LookupError("the backing device is not registered")
    return shown


def attached(bench: Bench) -> CacheSetUuid:
    """The set that is attached, else one that is not."""
    return backing(bench).cache_set or OTHER


def carried(bench: Bench) -> CacheSetUuid:
    """The set whose superblock the disk has, else one that it has not."""
    (disk,) = bench.host.scan((bench.serial,)).disks
    return disk.superblock or OTHER


def install(bench: Bench, serial: Serial | None = None, size_bytes: int = 0) -> str:
    before = backing(bench).cache_set
    made = bench.host.install_cache(serial or bench.serial, size_bytes or bench.size_bytes, flush_mb_s=0.0)
    bench.wait(lambda shown: shown.cache_set == made)
    return "the same set" if made == before else "a new set"


def device(bench: Bench) -> str:
    shown = backing(bench)
    dirty = "dirty data" if shown.dirty_bytes else "no dirty data"
    return f"{shown.state}, {shown.cache_mode}, {dirty}, {'a' if shown.cache_set else 'no'} set"


def flush(bench: Bench) -> str:
    shown = backing(bench)
    if not shown.writeback_running or shown.flush_limit_mb_s == 0:
        return "stopped"
    return "full speed" if shown.flush_full_speed else f"{shown.flush_limit_mb_s or math.inf:.1f} MB/s"


def disk(bench: Bench) -> str:
    (shown,) = bench.host.scan((bench.serial,)).disks
    names = ("superblock" if shown.superblock else "blank", *(["registered"] if shown.cache_set else []))
    return ", ".join((*names, *(["held"] if shown.held else [])))


def flushed(bench: Bench) -> None:
    bench.wait(lambda shown: shown.state is CacheState.CLEAN and not shown.dirty_bytes)


def detached(bench: Bench) -> None:
    bench.wait(lambda shown: shown.cache_set is None)


class Step(NamedTuple):
    """`answer`: an effect, `Class code` of a refusal, or what is shown; empty where a call just returns."""

    what: str
    call: Callable[[Bench], object]
    answer: str


STEPS = (
    Step("settings", lambda b: b.host.tune_backing(), ""),
    Step("again", lambda b: b.host.tune_backing(), ""),
    Step("shown", device, "no cache, writeback, no dirty data, no set"),
    # Without a cache.
    Step("boost without one", lambda b: b.host.enter_phase1(flush_mb_s=0.0), "HostError set.none"),
    Step("flush without one", lambda b: b.host.enter_phase2(), "HostError set.none"),
    Step("pace without one", lambda b: b.host.set_flush(1.0), "HostError set.none"),
    Step("bypass without one", lambda b: b.host.bypass_cache(), "HostError set.none"),
    Step("wake without one", lambda b: b.host.wake_writeback(), "HostError set.none"),
    Step("help without one", lambda b: b.host.help_detach(), "HostError set.none"),
    Step("detach without one", lambda b: b.host.detach_cache_set(OTHER), "already"),
    Step("start of what runs", lambda b: b.host.start_without_cache(), "already"),
    Step("register what is there", lambda b: b.host.register_backing(), "already"),
    Step("tombstone of what is not adopted", lambda b: b.host.write_tombstone(), "NotOursError tombstone.none"),
    # Attach.
    Step("a disk that is not there", lambda b: install(b, MISSING), "HostError disk.missing"),
    Step("a disk of another size", lambda b: install(b, size_bytes=NOT_THIS_SIZE), "NotOursError disk.size"),
    Step("nothing was written", disk, "blank"),
    Step("attach", install, "a new set"),
    Step("shown", device, "clean, writeback, no dirty data, a set"),
    Step("shown", disk, "superblock, registered, held"),
    Step("again", install, "the same set"),
    Step("the set is registered", lambda b: b.host.register_cache(b.serial, attached(b)), "already"),
    Step("another set", lambda b: b.host.register_cache(b.serial, OTHER), "HostError disk.other_set"),
    # Boosting.
    Step("no flush", flush, "stopped"),
    Step("write", lambda b: b.write(8), ""),
    Step("shown", device, "dirty, writeback, dirty data, a set"),
    Step("bypass over dirty data", lambda b: b.host.bypass_cache(), "DeviceBusyError device.not_drained"),
    Step("detach over dirty data", lambda b: b.host.detach_cache_set(attached(b)), "DeviceBusyError cache.not_drained"),
    Step("another set", lambda b: b.host.detach_cache_set(OTHER), "NotOursError set.other"),
    Step(
        "release what serves",
        lambda b: b.host.release_cache_disk(b.serial, b.size_bytes, attached(b)),
        "DeviceBusyError set.attached",
    ),
    Step("help while no detach runs", lambda b: b.host.help_detach(), "DeviceBusyError detach.none"),
    Step("start while attached", lambda b: b.host.start_without_cache(), "DeviceBusyError set.attached"),
    Step("nothing has changed", device, "dirty, writeback, dirty data, a set"),
    Step("pace", lambda b: b.host.set_flush(1.0), ""),
    Step("shown", flush, "1.0 MB/s"),
    Step("no pace", lambda b: b.host.set_flush(0.0), ""),
    Step("shown", flush, "stopped"),
    Step("durable", lambda b: b.host.make_durable(), ""),
    # Flushing.
    Step("flush", lambda b: b.host.enter_phase2(), ""),
    Step("shown", flush, "full speed"),
    Step("all is flushed", flushed, ""),
    Step("boost again", lambda b: b.host.enter_phase1(flush_mb_s=0.0), ""),
    Step("write", lambda b: b.write(1), ""),
    Step("it is absorbed", device, "dirty, writeback, dirty data, a set"),
    Step("flush again", lambda b: b.host.enter_phase2(), ""),
    Step("all is flushed", flushed, ""),
    Step(
        "detach before the bypass", lambda b: b.host.detach_cache_set(attached(b)), "DeviceBusyError cache.not_drained"
    ),
    # Bypassed.
    Step("bypass", lambda b: b.host.bypass_cache(), "changed"),
    Step("again", lambda b: b.host.bypass_cache(), "already"),
    Step("write", lambda b: b.write(1), ""),
    Step("it bypasses", device, "clean, none, no dirty data, a set"),
    Step("boost over a bypass", lambda b: b.host.enter_phase1(flush_mb_s=0.0), "DeviceBusyError cache.bypassed"),
    Step("attach over a bypass", install, "DeviceBusyError cache.bypassed"),
    Step("wake over a bypass", lambda b: b.host.wake_writeback(), "DeviceBusyError cache.bypassed"),
    # Detach and release.
    Step("another set", lambda b: b.host.detach_cache_set(OTHER), "NotOursError set.other"),
    Step("detach", lambda b: b.host.detach_cache_set(attached(b)), "changed"),
    Step("its end", detached, ""),
    Step("shown", device, "no cache, none, no dirty data, no set"),
    Step("again", lambda b: b.host.detach_cache_set(carried(b)), "already"),
    Step("shown", disk, "superblock, registered"),
    Step(
        "release another set",
        lambda b: b.host.release_cache_disk(b.serial, b.size_bytes, OTHER),
        "NotOursError disk.other_set",
    ),
    Step(
        "release a disk of another size",
        lambda b: b.host.release_cache_disk(b.serial, NOT_THIS_SIZE, carried(b)),
        "NotOursError disk.size",
    ),
    Step("release", lambda b: b.host.release_cache_disk(b.serial, b.size_bytes, carried(b)), "changed"),
    Step("shown", disk, "blank"),
    Step("again", lambda b: b.host.release_cache_disk(b.serial, b.size_bytes, None), "already"),
    Step("release what is gone", lambda b: b.host.release_cache_disk(MISSING, b.size_bytes, OTHER), "already"),
    Step("settings", lambda b: b.host.tune_backing(), ""),
    Step("as at the begin", device, "no cache, writeback, no dirty data, no set"),
)


def play(bench: Bench) -> Iterator[tuple[str, str]]:
    """What each step is, and the answer."""
    for step in STEPS:
        yield step.what, _answer(step, bench)


def _answer(step: Step, bench: Bench) -> str:
    try:
        found = step.call(bench)
    except HostError as error:
        return f"{type(error).__name__} {error.code}".strip()
    if isinstance(found, Enum):
        return str(found.value)
    return found if isinstance(found, str) else ""


# --- in a guest ------------------------------------------------------------------------------------------------


class InGuest:
    """The engine of this machine."""

    def __init__(self, uuid: str, serial: str, size_bytes: str) -> None:
        self.host: CacheHost = BcacheHost(uuid)
        self.serial, self.size_bytes = Serial(serial), int(size_bytes)

    def write(self, mib: int) -> None:
        node = f"of=/dev/{backing(self).adaptive_name}"
        subprocess.run(
            ["dd", "if=/dev/zero", node, "bs=1M", f"count={mib}", "oflag=direct"], check=True, timeout=LONG_S
        )

    def wait(self, is_so: Callable[[BackingView], bool]) -> None:
        end = time.monotonic() + LONG_S
        while not is_so(backing(self)):
            if time.monotonic() > end:
                raise TimeoutError(device(self))
            time.sleep(0.1)


if __name__ == "__main__":
    print(json.dumps([*play(InGuest(*sys.argv[1:]))]))
