"""What each cgroup does with the adaptive device during one second: MB/s, bytes in flight, waiting. Reads only.

Sources: `io.stat` of each cgroup, and the counters of the device. The kernel keeps neither latencies nor requests in
flight of a cgroup. So what is in flight follows by Little's law from its MB/s and the mean time that the device took
for a request, reads and writes apart: at a volume that serves first what comes first, that is much the same for all.
Waiting is what was seen of its tasks, several times a second: the kernel's own pressure figures (PSI) miss an fsync.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from elastio.core.lending import like_its_own
from elastio.core.model import Rates
from elastio.errors import HostError
from elastio.host import cgroups
from elastio.host.counters import finished
from elastio.host.sysfs import Sysfs
from elastio.host.task_states import CgroupMembers, TaskStates
from elastio.host.view import find_backing
from elastio.ports import Clock
from elastio.units import MB

SAMPLE_S, READINGS = 1.0, 10


@dataclass(frozen=True, slots=True)
class Adaptive:
    """The adaptive device: bcacheN, and its MAJOR:MINOR."""

    name: str
    number: str


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A cgroup that used the device.

    `in_flight_bytes` is a mean, `request_s` that of the device's requests of its kind, reads or writes; None: the
    device finished no such request, so it is not known. `waiting`: the share (0 to 1) of the readings in which one of
    its tasks waited in the kernel, for whatever.
    """

    group: str
    used: Rates
    in_flight_bytes: float | None
    waiting: float
    request_s: float | None


def find_adaptive(sysfs: Sysfs, backing_uuid: str) -> Adaptive:
    """Raises HostError while it does not run. bcache may hang: call it with `subprocess_timeout`."""
    backing = find_backing(sysfs, backing_uuid)
    if backing is None or backing.adaptive is None:
        raise HostError(
            f"the adaptive device on {backing_uuid} does not run on this machine: see `elastio doctor`",
            code="device.missing",
        )
    return Adaptive(backing.adaptive, sysfs.read(f"sys/block/{backing.adaptive}/dev"))


def sample_groups(sysfs: Sysfs, device: Adaptive, clock: Clock, sleep: Callable[[float], None]) -> list[GroupSample]:
    """Those that used the device in the next SAMPLE_S. One that begins or ends meanwhile is left out."""
    before = cgroups.all_moved(sysfs, cgroups.sharers(sysfs), device.number)
    reads, writes = finished(sysfs, device.name)
    begun = clock.now()
    waiting = _waiting(sysfs, before, clock, sleep)
    seconds = clock.now() - begun
    after = cgroups.all_moved(sysfs, before, device.number)
    after_reads, after_writes = finished(sysfs, device.name)
    reads, writes = after_reads.since(reads), after_writes.since(writes)
    moved = {group: each.since(before[group]) for group, each in after.items()}
    return [
        GroupSample(
            group,
            used := Rates(each.read_bytes / MB / seconds, each.written_bytes / MB / seconds),
            _in_flight(used, reads.mean_s, writes.mean_s),
            waiting.get(group, 0.0),
            like_its_own(each, reads, writes).mean_s,
        )
        for group, each in moved.items()
        if each.total_bytes > 0
    ]


def _waiting(sysfs: Sysfs, groups: Iterable[str], clock: Clock, sleep: Callable[[float], None]) -> Mapping[str, float]:
    """Takes SAMPLE_S. The share (0 to 1) of the readings of each cgroup in which one of its tasks waited."""
    states: dict[str, TaskStates] = {}
    for group in groups:
        with contextlib.suppress(HostError):  # it is gone
            states[group] = TaskStates(sysfs, CgroupMembers(sysfs, group))
    counts = dict.fromkeys(states, 0)
    for _ in range(READINGS):
        sleep(SAMPLE_S / READINGS)
        for group, tasks in states.items():
            with contextlib.suppress(HostError):
                counts[group] += any(state.waiting for state in tasks.read(clock.now()).values())
    return {group: count / READINGS for group, count in counts.items()}


def _in_flight(used: Rates, read_s: float | None, write_s: float | None) -> float | None:
    """Bytes; None where what was used has no known time."""
    parts = [(mb_s, time_s) for mb_s, time_s in ((used.read_mb_s, read_s), (used.write_mb_s, write_s)) if mb_s > 0]
    known = [mb_s * time_s for mb_s, time_s in parts if time_s is not None]
    return sum(known) * MB if len(known) == len(parts) else None
