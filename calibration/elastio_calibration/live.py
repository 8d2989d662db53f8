"""A real machine as the target: its agent by the control socket, the filesystem of its device, its ledger."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from elastio import registry
from elastio.accounting.ledger import Ledger
from elastio.accounting.rows import CycleRow
from elastio.config.schema import Config
from elastio.control.client import ControlClient
from elastio.control.protocol import UnreachableError
from elastio.control.status import Status
from elastio.core.model import Quote, VolumeSpec
from elastio.errors import ElastioError
from elastio.host.sysfs import Sysfs
from elastio.host.usage import holds
from elastio.units import counted, format_duration
from elastio_calibration.errors import CalibrationError
from elastio_calibration.fio import KINDS, PATTERNS, Fio
from elastio_calibration.record import Header, SavedState
from elastio_calibration.schedule import WRITE, Point
from elastio_calibration.target import (
    Labels,
    LedgerPosition,
    check_sizes,
    ending_with,
    header_of,
    paused,
    prices_of,
)
from elastio_calibration.writer import Writer
from elastio_setup.candidates import candidates
from elastio_setup.subprocess_timeout import call_with_timeout

# A status request costs an emulated processor a part of a second, which slows the flush that is measured.
POLL_S = 2.0
KERNEL_S = 15.0
# After the agent's cool-down: the last load must have left its samples.
SETTLE_S = 2.0
# By how much the clock may be adjusted during a measurement. No earlier boost began so late.
CLOCK_S = 0.5
# After this time without a reply the agent is taken for dead.
UNREACHABLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Ports:
    """What a live target uses apart from the agent; tests pass the simulator.

    `cycles` returns the rows of the ledger between two times. `quote` returns the provider's price of a volume, for the
    backing volume and for caches of `quoted_bytes`; None: no prices.
    """

    writer: Writer
    fio: Fio
    cycles: Callable[[float, float], tuple[CycleRow, ...]]
    wall: Callable[[], float] = time.time
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    quote: Callable[[VolumeSpec], Quote] | None = None
    quoted_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveTarget:
    """See `target.Target`."""

    client: ControlClient
    config: Config
    labels: Labels
    ports: Ports

    def header(self) -> Header:
        """See `Target`."""
        status, policy = self._status(), self.config.policy()
        if status.backing is None:
            raise CalibrationError("the agent does not see its backing device: see `elastio status`")
        size_bytes, quote = status.backing.size_bytes, self.ports.quote
        return header_of(
            policy,
            self.labels,
            kernel=os.uname().release,
            cloud=status.agent.cloud or self.config.provider.name,
            instance_type=status.agent.instance_type,
            sample_interval_s=self.config.agent.sample_interval_s,
            backing_bytes=size_bytes,
            wall_s=self.ports.wall(),
            prices=None if quote is None else prices_of(quote, policy, size_bytes, self.ports.quoted_bytes),
        )

    def locked(self) -> AbstractContextManager[None]:
        """See `Target`."""
        return self.ports.writer.work_dir.locked()

    def check(self, points: Sequence[Point]) -> None:
        """See `Target`: sizes against the configuration, room on the filesystem, boosts left today."""
        check_sizes(points, self.config.policy())
        self.ports.writer.work_dir.check(max(p.dataset_bytes for p in points))
        spend = self._status().spend
        boosts = sum(1 for point in points if point.cache_bytes)
        if spend.max_boosts is not None and spend.boosts + boosts > spend.max_boosts:
            raise CalibrationError(
                f"{counted(boosts, 'boost')} needed, and the cap allows {spend.max_boosts - spend.boosts} more today: "
                "raise caps.max_boosts_per_day, or choose a smaller plan",
                code="caps.max_boosts_per_day",
            )

    # --- the agent -------------------------------------------------------------------------------------------

    def _status(self) -> Status:
        status = self.client.status()
        if status.fault:
            raise ElastioError(f"the agent is faulted: {status.fault}")
        return status

    def _status_soon(self) -> Status:
        """The reply may be late under load; retrying does not affect the measurement."""
        deadline = self.ports.now() + UNREACHABLE_S
        while True:
            try:
                return self._status()
            except UnreachableError:
                if self.ports.now() > deadline:
                    raise
                self.ports.sleep(POLL_S)

    def agent(self) -> SavedState:
        """See `Target`."""
        status = self._status()
        return SavedState(status.learned_size_bytes, status.paused)

    def learn(self, size_bytes: int | None) -> None:
        """See `Target`."""
        size = self.config.policy().initial_size_bytes if size_bytes is None else size_bytes
        self.client.ask("learn", size_bytes=size)

    def set_paused(self, paused: bool) -> None:
        """See `Target`."""
        self.client.ask("pause" if paused else "resume")

    def wait_idle(self, limit_s: float) -> None:
        """See `Target`."""
        policy = self.config.policy()
        deadline = self.ports.now() + limit_s
        while not _is_idle(status := self._status_soon(), policy.release_threshold):
            if status.hold is not None:
                raise CalibrationError(
                    f"the agent begins no boost for {format_duration(status.hold.left_s)} ({status.hold.reason}): "
                    "wait, or end the inhibition for a snapshot with `elastio unquiesce`",
                    code="inhibited",
                )
            if self.ports.now() > deadline:
                raise ElastioError(
                    f"the device is not idle after {format_duration(limit_s)} (phase {status.phase}, utilization "
                    f"{status.load.utilization:.0%}): nothing else may use it during a calibration",
                    code="not_idle",
                )
            self.ports.sleep(POLL_S)
        self.ports.sleep(policy.cool_down_s + SETTLE_S)

    # --- the device ------------------------------------------------------------------------------------------

    @contextmanager
    def dataset(self, point: Point, limit_s: float) -> Iterator[float]:
        """See `Target`. The agent is paused while the files are laid out: a boost for that would be measured."""
        with ending_with(self._clean):
            if point.pattern in KINDS:
                with paused(self):
                    self.ports.fio.lay_out(point.dataset_bytes)
                    self.wait_idle(limit_s)
            yield self._write(point)

    def _write(self, point: Point) -> float:
        if point.pattern in KINDS:
            return self.ports.fio.run(point.pattern, point.dataset_bytes)
        if point.pattern != WRITE:
            raise CalibrationError(
                f"{point.pattern} is not a pattern; use one of {', '.join(PATTERNS)}", code="pattern"
            )
        seconds = self.ports.writer.write(point.dataset_bytes)
        # Whole blocks were written; return the time for exactly this dataset.
        return seconds * point.dataset_bytes / self.ports.writer.written_bytes(point.dataset_bytes)

    def _clean(self) -> None:
        with ending_with(self.ports.fio.work_dir.clean):
            self.ports.writer.work_dir.clean()

    def position(self) -> LedgerPosition:
        """See `Target`."""
        return LedgerPosition(self.ports.wall(), self.ports.now())

    def boosts_since(self, position: LedgerPosition) -> tuple[CycleRow, ...]:
        """See `Target`. The wall clock tells for how long a cache is paid."""
        wall = self.ports.wall()
        set_by_s = wall - position.wall_s - (self.ports.now() - position.monotonic_s)
        if abs(set_by_s) > CLOCK_S:
            text = f"the clock was set by {set_by_s:+.1f} s meanwhile: the time for which the cache was paid is unknown"
            raise CalibrationError(text, code="clock.set")
        since = position.wall_s - CLOCK_S
        return tuple(row for row in self.ports.cycles(since, wall) if row.started_wall >= since)


def _is_idle(status: Status, release_threshold: float) -> bool:
    """A volume that is kept for an operator may stay; it does not disturb."""
    listed = status.owned is not None and all(volume.kept for volume in status.owned)
    nothing_left = status.phase == "idle" and status.cycle is None and status.hold is None and listed
    return status.recovered and nothing_left and status.load.utilization < release_threshold


def ledger_cycles(path: Path) -> Callable[[float, float], tuple[CycleRow, ...]]:
    """Opens the ledger for each call: the agent writes to it meanwhile."""

    def cycles(since: float, until: float) -> tuple[CycleRow, ...]:
        if not path.exists():
            raise CalibrationError(f"there is no ledger at {path}: has the agent run here?")
        with Ledger(path, read_only=True) as ledger:
            return ledger.cycles(since, until)

    return cycles


def require_adaptive(directory: Path, config: Config, sysfs: Sysfs) -> None:
    """Raises CalibrationError where the directory is not on the filesystem of this agent's adaptive device."""
    found = call_with_timeout(lambda: candidates(sysfs), KERNEL_S)
    name = next((c.adaptive for c in found if c.uuid == config.device.backing_uuid), None)
    if name is None:
        text = f"the backing device {config.device.backing_uuid} is not running: see `elastio doctor`"
        raise CalibrationError(text, code="backing.stopped")
    if not directory.is_dir():
        raise CalibrationError(f"{directory} is not a directory", code="directory.missing")
    if not holds(sysfs, name, directory):
        raise CalibrationError(
            f"{directory} is not on the filesystem of /dev/{name}, the adaptive device: nothing was written; "
            "name a directory of that filesystem",
            code="directory.elsewhere",
        )


def quoting(config: Config) -> Callable[[VolumeSpec], Quote]:
    """The provider's `quote`. Raises ConfigError."""
    return registry.open_provider(config.provider.name, config.provider.settings, config.device.backing_uuid).quote
