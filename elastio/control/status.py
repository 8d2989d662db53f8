"""The status document, which the daemon publishes after each decision and `elastio status` prints.

It has plain values only, so that it is equal after the way through the control socket as JSON. Field names are part of
the protocol: a change of their meaning needs a new protocol version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastio import codec
from elastio.core.shares import ALL_MAY, LatencyTarget, Reserved
from elastio.errors import ControlError
from elastio.strategy.spending import Others, Spend, Spent


@dataclass(frozen=True, slots=True)
class AgentPart:
    version: str
    uptime_s: float
    host_responsive: bool
    cloud: str
    instance_id: str
    instance_type: str
    zone: str


@dataclass(frozen=True, slots=True)
class LoadPart:
    """`utilization` 1.0 is the whole bandwidth of the backing device. Rates are those of the last sample.

    `read_mb_s` and `write_mb_s` are of the adaptive device; the others are part of them, or flushing. `counted_mb_s`:
    what of both counts towards a boost; None: all. `may_boost`, `no_boost`: as configured. `sampled_wall`: the end of
    the sample, in seconds since the epoch; None: none was taken yet.
    """

    utilization: float
    threshold: float
    backing_bandwidth_mb_s: float
    read_mb_s: float
    write_mb_s: float
    backing_read_mb_s: float = 0.0
    backing_write_mb_s: float = 0.0
    cache_read_mb_s: float = 0.0
    cache_write_mb_s: float = 0.0
    sampled_wall: float | None = None
    counted_mb_s: float | None = None
    may_boost: tuple[str, ...] = ALL_MAY.may
    no_boost: tuple[str, ...] = ALL_MAY.no


@dataclass(frozen=True, slots=True)
class BackingPart:
    running: bool
    state: str
    cache_mode: str
    dirty_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CyclePart:
    """`flush_progress` goes from 0 to 1; None without a flush. Size and bandwidth are those provisioned.

    `price_per_hour` None: nothing is bought yet, or its price is not known. `choice`: why this cache was chosen, if
    money decides. `held_s`: how long a cache that is unused is still held; None: it is not. `cost`: owed so far.
    """

    token: str
    trigger: str
    volume_id: str | None
    serial: str | None
    size_bytes: int
    bandwidth_mb_s: float
    started_wall: float
    elapsed_s: float
    boosted_after_s: float | None
    peak_dirty_bytes: int
    flush_started_dirty_bytes: int
    flush_progress: float | None
    failure: str
    price_per_hour: float | None = None
    currency: str = ""
    choice: str = ""
    held_s: float | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class MonthPart:
    """Spending since the first of the local month, and the caps; None: no cap."""

    boosts: int = 0
    agbs: float = 0.0
    cost: float = 0.0
    max_boosts: int | None = None
    max_agbs: float | None = None
    max_cost: float | None = None

    @property
    def spent(self) -> Spent:
        """The same for the core."""
        return Spent(self.boosts, self.agbs, self.cost)


@dataclass(frozen=True, slots=True)
class OthersPart:
    """What the other devices that share the caps have spent today, and reserved for boosts that run.

    `month` is the same for the local month, without caps. `trouble`: why all that is not known; empty: it is.
    """

    boosts: int = 0
    agbs: float = 0.0
    cost: float = 0.0
    month: MonthPart = MonthPart()
    trouble: str = ""

    @property
    def others(self) -> Others:
        """The same for the core."""
        return Others(Spent(self.boosts, self.agbs, self.cost), self.month.spent, self.trouble)


@dataclass(frozen=True, slots=True)
class SpendPart:
    """Spending since local midnight, and the caps; None: no cap. `known` False: the ledger cannot be read.

    `currency` is that of `cost`; empty if nothing with a price was billed. `unpriced` boosts are not in `cost`. All of
    this is this device's; `others` counts under the caps as well. None: they are not shared.
    """

    boosts: int
    agbs: float
    cost: float
    max_boosts: int | None
    max_agbs: float | None
    max_cost: float | None
    known: bool = True
    currency: str = ""
    unpriced: int = 0
    month: MonthPart = MonthPart()
    others: OthersPart | None = None

    @property
    def spend(self) -> Spend:
        """The same for the core."""
        spent = self.boosts, self.agbs, self.cost, self.known, self.currency, self.unpriced
        return Spend(*spent, self.month.spent, others=None if self.others is None else self.others.others)


@dataclass(frozen=True, slots=True)
class VolumePart:
    """`tag`: whether the volume may hold data. `kept`: only an operator may release it.

    `backing_uuid` is set if it was bought for another backing device than this agent's.
    """

    id: str
    state: str
    size_bytes: int
    tag: str = "unknown"
    kept: bool = False
    backing_uuid: str = ""


@dataclass(frozen=True, slots=True)
class InhibitionPart:
    """`safe`: the backing volume is consistent and may be copied."""

    reason: str
    left_s: float
    flush: bool
    safe: bool


@dataclass(frozen=True, slots=True)
class ExpectedPart:
    """An announced burst; `size_bytes` 0: as learned."""

    in_s: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PurchasesPart:
    """What keeps boosts from beginning or succeeding.

    `failures`: boosts in a row that failed before their cache was attached. `stopped`: no volume is bought until an
    operator resumes. Since the agent started: `capped` is how often a cap forbade a boost (asked again each minute),
    `declined` how many boosts would not have been worth their price.
    """

    failures: int = 0
    stopped: bool = False
    capped: int = 0
    declined: int = 0


@dataclass(frozen=True, slots=True)
class CreditsPart:
    """The credits of the backing volume, by the agent's model.

    `reserve_bytes` are left by a flush, and `flush_limit_mb_s` is the most that they allow one now; None: no limit.
    """

    balance_bytes: float
    capacity_bytes: float
    reserve_bytes: float
    base_mb_s: float
    burst_mb_s: float
    flush_limit_mb_s: float | None = None

    @property
    def share(self) -> float:
        """0 to 1: the balance over a full bucket."""
        return self.balance_bytes / self.capacity_bytes


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A missing cache: its volume, and the data that only this volume holds.

    `may_lack_data`: the attached backing device names no cache, and may be an older copy. `may_be_older`: the cache was
    clean, and the device may have been written to since.
    """

    volume_id: str | None
    volume_state: str
    serial: str | None
    dirty_bytes: int
    peak_dirty_bytes: int
    seen_wall: float | None
    adaptive: str
    waits_for_umount: bool
    may_lack_data: bool = False
    may_be_older: bool = False


@dataclass(frozen=True, slots=True)
class TakeOverPart:
    """An order to take over the volume of a machine that is gone. `refused` empty: it was not answered yet."""

    volume_id: str
    refused: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class CapacityPart:
    """What applications can have now, in MB/s of reads and writes together; None: `unknown` says why.

    `limited_by` is the volume that limits it ("backing volume", "cache volume", "IOPS of the cache volume"),
    `bandwidth_mb_s` that volume's bandwidth (0: its IOPS limit it), `flush_mb_s` the most that the flush takes of it.
    `missed`: the share (0 to 1) of applications' bytes that the backing volume moves although there is a cache.
    `shared_mb_s`: what the agent shares among cgroups by limits; None: it limits nobody. `reserve`: what is reserved of
    that, `latency`: whose requests are not to wait long.
    """

    mb_s: float | None
    limited_by: str = ""
    bandwidth_mb_s: float = 0.0
    flush_mb_s: float = 0.0
    missed: float = 0.0
    unknown: str = ""
    shared_mb_s: float | None = None
    reserve: tuple[Reserved, ...] = ()
    latency: tuple[LatencyTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """`recovered` False: the phase has not been determined from the kernel yet.

    `owned` None: the cloud has not listed this agent's volumes since the start. `cloud_error`: the last error of the
    cloud; empty after a successful call. `restraint`: why past boosts prevent or delay new ones. `capped`: which cap
    has ended a boost, so that no other begins. `fault_kind` is the kind of the fault, for programs; empty: none.
    `credits` None: the backing volume has none, or no sample was taken yet. `last_error` is that of what does not work
    now, and `last_error_wall` since when; both are empty (None) once it works again. `device_uuid`: that of the
    backing device. `least_boost_s`: for how long the next volume exists at the least. It and `capacity` are None if the
    agent is of a release that does not publish them. `learned_bandwidth_mb_s`: of the next cache, for applications;
    None: it is fixed.
    """

    wall: float
    phase: str
    recovered: bool
    waiting_for: str
    paused: bool
    fault: str
    last_error: str
    cloud_error: str
    learned_size_bytes: int | None
    agent: AgentPart
    load: LoadPart
    spend: SpendPart
    backing: BackingPart | None
    cycle: CyclePart | None
    owned: tuple[VolumePart, ...] | None
    listed_ago_s: float | None = None
    hold: InhibitionPart | None = None
    missing: MissingPart | None = None
    restraint: str = ""
    expected: tuple[ExpectedPart, ...] = ()
    capped: str = ""
    fault_kind: str = ""
    credits: CreditsPart | None = None
    last_error_wall: float | None = None
    device_uuid: str = ""
    purchases: PurchasesPart = PurchasesPart()
    take_over: TakeOverPart | None = None
    capacity: CapacityPart | None = None
    least_boost_s: float | None = None
    learned_bandwidth_mb_s: float | None = None

    @property
    def dirty_bytes(self) -> int:
        """0 also where the device is not known."""
        return self.backing.dirty_bytes if self.backing else 0

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings and numbers."""
        document: dict[str, Any] = codec.encode(self)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Status:
        """The inverse of `to_json`. Raises ControlError if a field is missing or has another type."""
        try:
            return codec.decode(cls, document)
        except (TypeError, ValueError) as error:
            raise ControlError(
                f"the agent's status cannot be read ({error}): agent and `elastio` are of different releases",
                code="status.fields",
            ) from error
