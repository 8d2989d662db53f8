"""`elastio shares`: which cgroups use the adaptive device, and what each would have of it by its weight."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from elastio import codec
from elastio.accounting.tables import table
from elastio.control.status import CapacityPart
from elastio.core.shares import BoostRights, Share, SharePlan, Use, divide, is_overloaded
from elastio.host import cgroups
from elastio.host.cgroups import limits_of
from elastio.host.share_limits import share_mb_s
from elastio.host.sysfs import Sysfs
from elastio.units import KIB
from elastio_cli.app import App
from elastio_setup.group_sampler import Adaptive, GroupSample, find_adaptive, sample_groups
from elastio_setup.subprocess_timeout import call_with_timeout

KERNEL_S = 15.0
HEADS = (
    "cgroup",
    "weight",
    "read MB/s",
    "write MB/s",
    "in flight KiB",
    "request ms",
    "waits",
    "share MB/s",
    "would get MB/s",
    "limit MB/s",
    "boosts",
)
NO_WEIGHTS = "this kernel keeps no weights of cgroups (io.weight): IOWeight= is not known, and all count alike"
OLD_AGENT = CapacityPart(None, unknown="the agent is of a release that does not publish it: restart elastiod")


@click.command(short_help="Show which cgroups use the adaptive device.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with --watch one on each line.")
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.pass_obj
def shares(app: App, as_json: bool, watch: bool) -> None:
    """Show which cgroups use the adaptive device, and what each would have of it by its weight.

    What is shown is that of one second. This command changes nothing. The weights have an effect on the device only
    where [share] is enabled: then the agent limits cgroups by them.
    """
    sysfs = app.sysfs()
    status = app.client().status()  # an agent that does not answer is noticed before a second is over
    uuid = status.device_uuid or app.config().device.backing_uuid  # earlier releases do not publish it
    cgroups.check_counted(sysfs)
    device = call_with_timeout(lambda: find_adaptive(sysfs, uuid), KERNEL_S)
    try:
        while True:
            seen = look(app, sysfs, device)
            click.echo(json.dumps(seen.to_json()) if as_json else "\n".join(seen.lines()))
            if not watch:
                return
            if not as_json:
                click.echo()
    except KeyboardInterrupt:
        return


def look(app: App, sysfs: Sysfs, device: Adaptive) -> Seen:
    """One second of the device. Raises ElastioError if the agent does not answer."""
    samples = sample_groups(sysfs, device, app.clock, app.sleep)
    weights = cgroups.weights(sysfs, tuple(sample.group for sample in samples))
    status = app.client().status()
    capacity = status.capacity or OLD_AGENT
    limits = {s.group: share_mb_s(limits_of(sysfs, s.group).get(device.number)) for s in samples}
    uses = [Use(s.group, s.used.total_mb_s, s.waiting, limits[s.group]) for s in samples]
    divided = () if capacity.mb_s is None else divide(uses, weights, SharePlan(capacity.mb_s, capacity.reserve))
    weighted = frozenset(sample.group for sample in samples if cgroups.has_weight(sysfs, sample.group))
    by_group = {share.group: share for share in divided}
    rights = BoostRights(status.load.may_boost, status.load.no_boost)
    boosts = {sample.group: rights.includes(sample.group) for sample in samples}
    return Seen(status.phase, capacity, tuple(samples), weights, by_group, weighted, limits, boosts)


@dataclass(frozen=True, slots=True)
class Seen:
    """One second of the device. `shares`: of the active cgroups; empty while the capacity is not known.

    `weighted`: the cgroups of which the kernel keeps a weight. The others count as with the kernel's default. `limits`:
    those by which the agent shares the device, in MB/s; None: it does not limit this cgroup. `boosts`: whether its load
    counts towards a boost.
    """

    phase: str
    capacity: CapacityPart
    samples: tuple[GroupSample, ...]
    weights: Mapping[str, float]
    shares: Mapping[str, Share]
    weighted: frozenset[str]
    limits: Mapping[str, float | None]
    boosts: Mapping[str, bool]

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "phase": self.phase,
            "capacity": codec.encode(self.capacity),
            "overloaded": is_overloaded(self.shares.values()),
            "groups": [self._group(sample) for sample in self.samples],
        }

    def _group(self, sample: GroupSample) -> dict[str, Any]:
        share = self.shares.get(sample.group)
        return {
            "cgroup": sample.group,
            "weight": self.weights[sample.group] if sample.group in self.weighted else None,
            "read_mb_s": sample.used.read_mb_s,
            "write_mb_s": sample.used.write_mb_s,
            "in_flight_bytes": sample.in_flight_bytes,
            "request_ms": None if sample.request_s is None else 1000 * sample.request_s,
            "target_ms": self._target_ms(sample),
            "waiting": sample.waiting,
            "share_mb_s": share.entitled_mb_s if share else None,
            "would_get_mb_s": share.allotted_mb_s if share else None,
            "limit_mb_s": self.limits[sample.group],
            "wants_more": share.wants_more if share else None,
            "boosts": self.boosts[sample.group],
        }

    def _target_ms(self, sample: GroupSample) -> float | None:
        target_s = SharePlan(0.0, latency=self.capacity.latency).target_s(sample.group)
        return None if target_s is None else 1000 * target_s

    def lines(self) -> list[str]:
        """What is printed otherwise."""
        overloaded = ", overloaded" if is_overloaded(self.shares.values()) else ""
        first = f"{self.phase}{overloaded}: {_capacity(self.capacity)}"
        if not self.samples:
            return [first, "no cgroup uses the device"]
        note = [] if self.weighted else [NO_WEIGHTS]
        return [first, *note, *table(HEADS, [self._cells(sample) for sample in self.samples], 0)[:-1]]

    def _cells(self, sample: GroupSample) -> tuple[str, ...]:
        share, in_flight = self.shares.get(sample.group), sample.in_flight_bytes
        limit, took_s, target_ms = self.limits[sample.group], sample.request_s, self._target_ms(sample)
        return (
            sample.group,
            f"{self.weights[sample.group]:g}" if sample.group in self.weighted else "-",
            f"{sample.used.read_mb_s:.1f}",
            f"{sample.used.write_mb_s:.1f}",
            "-" if in_flight is None else f"{in_flight / KIB:.0f}",
            ("-" if took_s is None else f"{1000 * took_s:.1f}") + ("" if target_ms is None else f" of {target_ms:g}"),
            f"{100 * sample.waiting:.0f} %",
            f"{share.entitled_mb_s:.1f}" if share else "-",
            f"{share.allotted_mb_s:.1f}" if share else "-",
            "-" if limit is None else f"{limit:.1f}",
            "yes" if self.boosts[sample.group] else "no",
        )


def _capacity(part: CapacityPart) -> str:
    if part.mb_s is None:
        return f"capacity unknown, because {part.unknown}"
    flush = f", {part.flush_mb_s:.1f} of it for the flush" if part.flush_mb_s else ""
    missed = f"; {100 * part.missed:.0f} % of the bytes miss the cache" if part.missed else ""
    bandwidth = f" of {part.bandwidth_mb_s:g} MB/s" if part.bandwidth_mb_s else ""
    return f"capacity {part.mb_s:.1f} MB/s, {part.limited_by}{bandwidth}{flush}{missed}"
