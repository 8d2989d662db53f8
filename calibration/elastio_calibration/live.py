"""The station on a real machine: the agent behind its control socket, the filesystem of its device, its ledger."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from elastio import __version__, registry
from elastio.accounting.ledger import Ledger
from elastio.accounting.rows import CycleRow
from elastio.config.schema import Config
from elastio.control.client import ControlClient
from elastio.control.protocol import UnreachableError
from elastio.control.status import Status
from elastio.core.model import Quote, VolumeSpec
from elastio.errors import ElastioError
from elastio.host.sysfs import Sysfs
from elastio.setup.candidates import candidates
from elastio.setup.subprocess_timeout import call_with_timeout
from elastio.units import format_duration
from elastio_calibration.errors import CalibrationError
from elastio_calibration.fio import KINDS, PATTERNS, Fio
from elastio_calibration.measurement import Conditions, Price, Prices
from elastio_calibration.record import Header
from elastio_calibration.schedule import WRITE, Wanted
from elastio_calibration.station import Boost, Mark, check_sizes, ending_with
from elastio_calibration.writer import Writer

# Each look takes an emulated processor a part of a second, which the flush that is measured could use.
POLL_S = 2.0
KERNEL_S = 15.0
# Beyond the agent's own pause: the last of the load has to leave its samples.
SETTLE_S = 2.0
# The clock may be set by so much during a measurement. No boost before it began as late as that.
CLOCK_S = 0.5
# An agent that gives no answer for so long will give none.
UNREACHABLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Ports:
    """What a live station touches beside the agent; tests put the simulator here."""

    writer: Writer
    fio: Fio
    cycles: Callable[[float, float], tuple[CycleRow, ...]]
    wall: Callable[[], float] = time.time
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Labels:
    """What nobody can find out from inside: types of volumes, a laboratory's scale, how the application writes."""

    backing_type: str
    cache_type: str
    writers: int = 1
    scale: float = 1.0
    pace_mb_s: float = 0.0


class LiveStation:
    """See `station.Station`."""

    def __init__(self, client: ControlClient, config: Config, labels: Labels, ports: Ports) -> None:
        self._client, self._config, self._labels, self._ports = client, config, labels, ports
        self.quote: Callable[[VolumeSpec], Quote] | None = None
        self.quoted_bytes: tuple[int, ...] = ()

    def header(self) -> Header:
        """See `Station`."""
        status, policy = self._status(), self._config.policy()
        if status.backing is None:
            raise CalibrationError("the agent does not see its backing device: `elastio status` says why")
        conditions = Conditions(
            kernel=os.uname().release,
            cloud=status.agent.cloud or self._config.provider.name,
            instance_type=status.agent.instance_type,
            backing_type=self._labels.backing_type,
            cache_type=self._labels.cache_type,
            backing_mb_s=policy.backing_bandwidth_mb_s,
            cache_mb_s=policy.cache_bandwidth_mb_s,
            utilization_threshold=policy.utilization_threshold,
            inactivity_delay_s=policy.inactivity_delay_s,
            sample_interval_s=self._config.agent.sample_interval_s,
            writers=self._labels.writers,
            scale=self._labels.scale,
            drain_mb_s=policy.drain_bandwidth_mb_s,
            pace_mb_s=self._labels.pace_mb_s,
        )
        made = datetime.fromtimestamp(self._ports.wall(), UTC).isoformat(timespec="seconds")
        size_bytes = status.backing.size_bytes
        return Header(conditions, size_bytes, made, f"elastio {__version__}", self._prices(size_bytes))

    def _prices(self, backing_bytes: int) -> Prices | None:
        """None where no quote was asked for."""
        if self.quote is None:
            return None
        policy = self._config.policy()
        caches = [self.quote(VolumeSpec(size, policy.bought_bandwidth_mb_s)) for size in self.quoted_bytes]
        slow = self.quote(VolumeSpec(backing_bytes, policy.backing_bandwidth_mb_s))
        fast = self.quote(VolumeSpec(backing_bytes, policy.cache_bandwidth_mb_s))
        return Prices(
            currency=slow.currency,
            source=slow.price_source,
            minimum_s=slow.minimum_s,
            slow_per_hour=slow.price_per_hour,
            fast_per_hour=fast.price_per_hour,
            caches=tuple(dict.fromkeys(Price(q.spec.size_bytes, q.price_per_hour) for q in caches)),
        )

    def claimed(self) -> AbstractContextManager[None]:
        """See `Station`."""
        return self._ports.writer.folder.claimed()

    def check(self, points: Sequence[Wanted]) -> None:
        """See `Station`: sizes against the configuration, room on the filesystem, boosts left today."""
        check_sizes(points, self._config.policy())
        self._ports.writer.folder.check(max(p.dataset_bytes for p in points))
        spend = self._status().spend
        boosts = sum(1 for point in points if point.cache_bytes)
        if spend.max_boosts is not None and spend.boosts + boosts > spend.max_boosts:
            raise CalibrationError(
                f"{boosts} boosts are needed and the cap leaves {spend.max_boosts - spend.boosts} today: "
                "raise caps.max_boosts_per_day, or choose a smaller plan"
            )

    # --- the agent -------------------------------------------------------------------------------------------

    def _status(self) -> Status:
        status = self._client.status()
        if status.fault:
            raise ElastioError(f"the agent is faulted: {status.fault}")
        return status

    def _status_soon(self) -> Status:
        """On a loaded machine an answer may be late: one that is gives nothing away that was measured."""
        deadline = self._ports.now() + UNREACHABLE_S
        while True:
            try:
                return self._status()
            except UnreachableError:
                if self._ports.now() > deadline:
                    raise
                self._ports.sleep(POLL_S)

    def learned_bytes(self) -> int | None:
        return self._status().learned_size_bytes

    def initial_bytes(self) -> int:
        return self._config.policy().initial_size_bytes

    def is_paused(self) -> bool:
        return self._status().paused

    def learn(self, size_bytes: int) -> None:
        self._client.ask("learn", size_bytes=size_bytes)

    def pause(self) -> None:
        self._client.ask("pause")

    def resume(self) -> None:
        self._client.ask("resume")

    def rest(self, limit_s: float) -> None:
        """See `Station`."""
        policy = self._config.policy()
        deadline = self._ports.now() + limit_s
        while not _is_at_rest(status := self._status_soon(), policy.release_threshold):
            if status.hold is not None:
                raise CalibrationError(
                    f"the agent is held ({status.hold.reason}) for {format_duration(status.hold.left_s)} and begins no "
                    "boost: wait, or end a snapshot's hold with `elastio unquiesce`"
                )
            if self._ports.now() > deadline:
                raise ElastioError(
                    f"the device is not at rest after {format_duration(limit_s)} (phase {status.phase}, utilization "
                    f"{status.load.utilization:.0%}): nothing else may use it during a calibration"
                )
            self._ports.sleep(POLL_S)
        self._ports.sleep(policy.cool_down_s + SETTLE_S)

    # --- the device ------------------------------------------------------------------------------------------

    def prepare(self, wanted: Wanted, limit_s: float) -> None:
        """See `Station`. Laying out is a load, and a boost for it would be measured."""
        if wanted.pattern == WRITE:
            return
        self.pause()
        with ending_with(self.resume):
            self._ports.fio.lay_out(wanted.dataset_bytes)
            self.rest(limit_s)

    def write(self, wanted: Wanted) -> float:
        """See `Station`."""
        if wanted.pattern in KINDS:
            return self._ports.fio.run(wanted.pattern, wanted.dataset_bytes)
        if wanted.pattern != WRITE:
            raise CalibrationError(f"{wanted.pattern} is no pattern that can be measured: {', '.join(PATTERNS)} are")
        seconds = self._ports.writer.write(wanted.dataset_bytes)
        # Whole blocks are written: told as the time that exactly this dataset would have taken.
        return seconds * wanted.dataset_bytes / self._ports.writer.written_bytes(wanted.dataset_bytes)

    def clean(self) -> None:
        with ending_with(self._ports.fio.folder.clean):
            self._ports.writer.folder.clean()

    def mark(self) -> Mark:
        wall = self._ports.wall()
        return Mark(wall, wall - self._ports.now())

    def boosts_since(self, mark: Mark) -> tuple[Boost, ...]:
        """See `Station`. What a cache is paid for is told by the wall clock."""
        wall = self._ports.wall()
        set_by_s = wall - self._ports.now() - mark.ahead_s
        if abs(set_by_s) > CLOCK_S:
            raise CalibrationError(
                f"the clock was set by {set_by_s:+.1f} s meanwhile: how long the cache was held cannot be told"
            )
        since = mark.at - CLOCK_S
        return tuple(_boost(row, wall) for row in self._ports.cycles(since, wall) if row.started_wall >= since)

    def now(self) -> float:
        return self._ports.now()


def _is_at_rest(status: Status, release_threshold: float) -> bool:
    """A volume that is kept for an operator may stay for ever, and takes part in nothing."""
    listed = status.owned is not None and all(volume.kept for volume in status.owned)
    nothing_left = status.phase == "idle" and status.cycle is None and status.hold is None and listed
    return status.recovered and nothing_left and status.load.utilization < release_threshold


def _boost(row: CycleRow, wall: float) -> Boost:
    return Boost(
        sold_bytes=row.provisioned_size_bytes,
        held_s=row.billed_s(0.0, wall),
        attached_s=row.steps.attached_s,
        boost_s=row.steps.boost_s,
        peak_in_use_percent=row.peak_in_use_percent,
        written_through_bytes=row.written_through_bytes,
        failure=row.failure,
    )


def ledger_cycles(path: Path) -> Callable[[float, float], tuple[CycleRow, ...]]:
    """Reads the ledger anew each time: the agent writes it meanwhile."""

    def cycles(since: float, until: float) -> tuple[CycleRow, ...]:
        with closing(_open(path)) as ledger:
            return ledger.cycles(since, until)

    return cycles


def _open(path: Path) -> Ledger:
    if not path.exists():
        raise CalibrationError(f"there is no ledger at {path}: has the agent run here?")
    return Ledger(path, read_only=True)


def require_adaptive(directory: Path, config: Config, sysfs: Sysfs) -> None:
    """The directory must lie on the filesystem of this agent's adaptive device itself. Raises CalibrationError."""
    found = call_with_timeout(lambda: candidates(sysfs), KERNEL_S)
    name = next((c.adaptive for c in found if c.uuid == config.device.backing_uuid), None)
    if name is None:
        raise CalibrationError(f"the backing device {config.device.backing_uuid} does not run: see `elastio doctor`")
    if not directory.is_dir():
        raise CalibrationError(f"{directory} is not a directory")
    device = directory.stat().st_dev
    numbers = sysfs.read_or(f"sys/class/block/{name}/dev", "") or sysfs.read_or(f"sys/block/{name}/dev", "")
    if numbers.strip() != f"{os.major(device)}:{os.minor(device)}":
        raise CalibrationError(
            f"{directory} is not on the filesystem of /dev/{name}, the adaptive device: nothing was written; "
            "name a directory of that filesystem"
        )


def quoting(config: Config) -> Callable[[VolumeSpec], Quote]:
    """The provider's quotes."""
    return registry.open_provider(config.provider.name, config.provider.settings, config.device.backing_uuid).quote
