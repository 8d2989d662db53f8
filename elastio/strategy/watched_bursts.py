"""The bursts that the agent watches, and where the time of cgroups goes in each. Pure.

Theory of operation. A burst begins with a sample of throughput at or above the utilization threshold, and ends with the
last one that was not below the release threshold, once `quiet_s` of low load have followed. It is the same on a machine
that never boosts. A boost that is released while the load is low ends the burst too: for who releases it that is over,
and the next load may come before that much quiet is seen. What is seen of cgroups meanwhile is added up: at once to
what followed the last load (`since`), and from there to the burst (`counted`) when the load comes back. So the pauses
of a burst belong to it, and the quiet after it does not.

Not every second of every cgroup is looked at: that would cost more than it tells. What was seen stands for the time
since the cgroup was looked at before (`Totals.standing_for`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from elastio.core.moved import Moved
from elastio.strategy.account import Totals

Groups = Mapping[str, Totals]
# Without samples for so long nobody saw how the burst went on: the machine slept, or the agent was stopped.
UNSEEN_S = 60.0


@dataclass(frozen=True, slots=True)
class Watch:
    """What is to be looked at: cgroups by patterns of their paths, and the device whose bandwidth limit is in force.

    `begun_at` tells one burst from another. `cap_mb_s` None: the limit is not known. `token`: the boost that is there.
    `only_counts`: the burst is over, and only what cgroups have moved until now is asked for.
    """

    begun_at: float
    device: str
    cap_mb_s: float | None
    patterns: tuple[str, ...]
    token: str | None = None
    only_counts: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of it: the sums of cgroups that were looked at. `remarks`: what could not be seen, as sentences.

    `moved`: what cgroups moved since the reading before, in the boost `token`. `is_lost`: there was no answer.
    """

    begun_at: float
    groups: Groups = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    is_lost: bool = False
    token: str | None = None
    moved: Mapping[str, Moved] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchedBurst:
    """Times in CLOCK_BOOTTIME. `loaded_until`: the end of the last sample with a load; `seen_at`: of the last one.
    Until then the device has moved `loaded_bytes` and `moved_bytes`.
    """

    begun_at: float
    loaded_until: float
    seen_at: float
    loaded_bytes: int = 0
    moved_bytes: int = 0
    counted: Groups = field(default_factory=dict)
    since: Groups = field(default_factory=dict)

    def plus(self, groups: Groups) -> WatchedBurst:
        """With what was seen of cgroups."""
        return replace(self, since=joined(self.since, groups))


class Load(NamedTuple):
    """One sample of throughput: its end, its length, the share of the backing device's bandwidth that was used.

    `moved_bytes`: what was read and written in it.
    """

    at: float
    seconds: float
    used: float
    moved_bytes: int = 0


class Thresholds(NamedTuple):
    """Shares of the backing device's bandwidth at which a burst begins, and below which its load is over."""

    begin: float
    release: float
    quiet_s: float


class Course(NamedTuple):
    """The burst that goes on, and the one that has ended; None: there is none."""

    current: WatchedBurst | None
    ended: WatchedBurst | None = None


def joined(groups: Groups, others: Groups) -> Groups:
    """The sums of both, by cgroup."""
    found = dict(groups)
    for name, totals in others.items():
        found[name] = found[name].plus(totals) if name in found else totals
    return found


def with_load(burst: WatchedBurst | None, load: Load, limits: Thresholds, *, is_released: bool = False) -> Course:
    """What becomes of the burst with one more sample of throughput. `is_released`: its boost is, since the last one."""
    if burst is None:
        return Course(_begun(load, limits))
    is_unseen = load.at - load.seconds - burst.seen_at > UNSEEN_S
    if is_unseen or (is_released and burst.loaded_until < burst.seen_at):
        return Course(_begun(load, limits), burst)
    burst = replace(burst, seen_at=load.at, moved_bytes=burst.moved_bytes + load.moved_bytes)
    if load.used >= limits.release:
        counted = joined(burst.counted, burst.since)
        loaded = replace(burst, loaded_until=load.at, loaded_bytes=burst.moved_bytes, counted=counted, since={})
        return Course(loaded)
    if load.at - burst.loaded_until >= limits.quiet_s:
        return Course(None, burst)
    return Course(burst)


def _begun(load: Load, limits: Thresholds) -> WatchedBurst | None:
    begun = WatchedBurst(load.at - load.seconds, load.at, load.at, load.moved_bytes, load.moved_bytes)
    return begun if load.used >= limits.begin else None
