"""Comparison of a learned size with the smallest cache that does not spill.

Equal bursts are repeated until the agent has learned from two of them; the size that it buys for the third is the
learned one. Then the same burst is run with smaller and smaller caches, until one spills.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from elastio.units import GIB
from elastio_testbed.console import Say
from elastio_testbed.experiment import Setup
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import Guest
from elastio_testbed.trial import Plan, running_guest

SPEC, REPORT = "/var/tmp/burst.json", "/var/tmp/burst.report"
LEDGER = "/var/lib/elastio/ledger.sqlite"
LEARNING = 3
# Each trial is this much smaller than the one before.
STEP = 0.94
TRIALS = 8
LEAST_BYTES = int(0.26 * GIB)  # the minimum of bcache and of the agent's configuration
REST_S = 600.0


@dataclass(frozen=True, slots=True)
class SizeTrial:
    """One burst and its cache. `spilled_bytes`: written through or past the full cache."""

    size_bytes: int
    burst_s: float
    peak_dirty_bytes: int
    peak_in_use_percent: int
    spilled_bytes: int


@dataclass(frozen=True, slots=True)
class Sizing:
    """`learned` are the first phases, `tried` the smaller ones; `smallest_bytes` None: none of those spilled."""

    burst_bytes: int
    learned: tuple[SizeTrial, ...]
    tried: tuple[SizeTrial, ...]

    @property
    def learned_bytes(self) -> int:
        return self.learned[-1].size_bytes

    @property
    def smallest_bytes(self) -> int | None:
        """The smallest size that did not spill, if a smaller one did."""
        if not self.tried or not self.tried[-1].spilled_bytes:
            return None
        kept = [t.size_bytes for t in (self.learned[-1], *self.tried) if not t.spilled_bytes]
        return min(kept) if kept else None

    @property
    def excess(self) -> float | None:
        """By which share the learned size exceeds the smallest that does not spill."""
        return None if self.smallest_bytes is None else self.learned_bytes / self.smallest_bytes - 1

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "smallest_bytes": self.smallest_bytes, "excess": self.excess}


def measure(plan: Plan, image: GuestImage, say: Say) -> Sizing:
    """Run bursts of the plan's second dump in one adaptive guest. Raises GuestError if a burst does not end."""
    burst = plan.scaled().dumps_bytes[-1]
    with running_guest(plan, Setup.ADAPTIVE, image) as (guest, endpoint):
        learned = []
        for number in range(LEARNING):
            learned.append(_burst(guest, burst, number))
            say(_line("learning", learned[-1]))
        tried: list[SizeTrial] = []
        for size in _smaller(learned[-1].size_bytes, endpoint.scale.gib_bytes):
            _only_size(guest, endpoint, size)
            tried.append(_burst(guest, burst, LEARNING + len(tried)))
            say(_line("trying", tried[-1]))
            if tried[-1].spilled_bytes:
                break
        return Sizing(burst, tuple(learned), tuple(tried))


def _smaller(size_bytes: int, unit_bytes: int) -> Iterator[int]:
    """Sizes below the learned one, in whole units."""
    last = size_bytes
    for trial in range(1, TRIALS + 1):
        size = int(size_bytes * STEP**trial) // unit_bytes * unit_bytes
        if LEAST_BYTES <= size < last:
            yield size
        last = size


def _only_size(guest: Guest, endpoint: Any, size_bytes: int) -> None:
    """Make the agent buy exactly this size."""
    sizes = dict.fromkeys(("min_size_gib", "max_size_gib", "initial_size_gib"), size_bytes / GIB)
    guest.write_config(endpoint, {"cache": sizes})
    guest.check(["systemctl", "restart", "elastiod"], timeout_s=120)
    guest.wait_for(lambda status: status["owned"] is not None, 180, "the agent to be ready")


def _burst(guest: Guest, size_bytes: int, number: int) -> SizeTrial:
    """Run one dump, and return its boost."""
    known = len(_boosts(guest))
    spec = {"directory": "/data", "ranks": 2, "dumps": [size_bytes], "compute_s": 0, "seed": number}
    guest.vm.agent.write_file(SPEC, json.dumps(spec).encode())
    guest.vm.agent.write_file(REPORT, b"")
    unit = f"burst{number}"
    guest.check(["systemd-run", f"--unit={unit}", *guest.command(), "run", SPEC, REPORT])
    dump = _wait_for_dump(guest, unit)
    guest.wait_for(lambda s: s["phase"] == "idle" and s["cycle"] is None and s["owned"] == [], REST_S, "the release")
    boosts = _boosts(guest)
    if len(boosts) != known + 1:
        raise GuestError(f"{guest.name}: a burst of {size_bytes} bytes caused {len(boosts) - known} boosts")
    row = boosts[-1]
    return SizeTrial(
        size_bytes=row["provisioned_size_bytes"],
        burst_s=round(dump["ended"] - dump["began"], 3),
        peak_dirty_bytes=row["peak_dirty_bytes"],
        peak_in_use_percent=row["peak_in_use_percent"],
        spilled_bytes=row["written_through_bytes"],
    )


def _boosts(guest: Guest) -> list[dict[str, Any]]:
    return [p for p in guest.report()["phases"] if p["steps"]["boost_s"] is not None] if _has_ledger(guest) else []


def _has_ledger(guest: Guest) -> bool:
    return guest.vm.agent.run(["test", "-s", LEDGER], timeout_s=30).returncode == 0


def _wait_for_dump(guest: Guest, unit: str) -> dict[str, Any]:
    end = time.monotonic() + REST_S
    while time.monotonic() < end:
        lines = [json.loads(line) for line in guest.vm.agent.read_file(REPORT).decode().splitlines()]
        if lines and "error" in lines[-1]:
            raise GuestError(f"{guest.name}: {unit}: {lines[-1]['error']}")
        if lines and "done" in lines[-1]:
            return next(line for line in lines if "dump" in line)
        time.sleep(1.0)
    raise GuestError(f"{guest.name}: {unit} did not finish within {REST_S:.0f} s")


def _line(what: str, trial: SizeTrial) -> str:
    return (
        f"{what}: a cache of {trial.size_bytes / 1e6:.0f} MB, {trial.peak_in_use_percent} % in use, "
        f"{trial.peak_dirty_bytes / 1e6:.0f} MB dirty, {trial.spilled_bytes / 1e6:.0f} MB spilled, "
        f"{trial.burst_s:.1f} s"
    )
