"""One set-up on fresh guests: prepared, started, waited for, and concluded, so that several can be interleaved."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elastio.units import GB, agbs
from elastio_testbed.account import Account, Bought
from elastio_testbed.bound import Bandwidths, dumped_by_phase, least_agbs
from elastio_testbed.disturbance import Disturbance
from elastio_testbed.ec2 import Ec2Endpoint, Scale
from elastio_testbed.experiment import EXPERIMENTS, Scaled, Setup
from elastio_testbed.governed import Governed, governed, intervals_of
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import Guest
from elastio_testbed.rates import APPLICATION, BACKING, rates_of
from elastio_testbed.result import Phase, SetupResult, own_share_s
from elastio_testbed.scratch import scratch_folder
from elastio_testbed.together import CancelledError

POLL_S = 1.0
# Beyond what a set-up should take, before it is given up.
PATIENCE = 4.0
IDLE_AGAIN_S = 600.0
SETTLE_S = 60.0
CALLS_S = 120.0  # the last calls into a guest
EC2, OPENSTACK = "ec2", "openstack"
JOURNAL = "/var/lib/elastio/journal.jsonl"
# Of a phase's times those that are no steps on the way to writeback mode.
NO_STEPS = {"boost_s", "own_s", "flush_s", "attached_s"}
# What one MiB/s of the cloud's API is bought as: 125 is the least that gp3 sells.
API_MIB_S = 125

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `seed` makes the data of the workload; `cloud` is EC2 or OPENSTACK; `suite` the Debian of
    the guests, as `build_guest_image` takes it; `disturb` the burst of the adaptive set-up that is to be disturbed.

    `fixed_cache_gb`, as published: every cache gets this size, whatever the agent learns.
    """

    experiment: str
    setups: tuple[Setup, ...]
    scale: float = 1.0
    bandwidth: float = 0.5
    vms: int = 1
    seed: int = 1
    repeat: int = 1
    side_by_side: bool = False
    cloud: str = EC2
    fixed_cache_gb: float | None = None
    suite: str | None = None
    disturb: int | None = None

    def scaled(self) -> Scaled:
        published = EXPERIMENTS[self.experiment]
        if self.fixed_cache_gb is not None:
            published = replace(published, initial_cache_gb=self.fixed_cache_gb, is_size_fixed=True)
        return Scaled(published, self.scale, self.bandwidth)

    @property
    def needs_tools(self) -> bool:
        """Whether the everyday image will not do. All set-ups of a run use one image, or they would not compare."""
        return EXPERIMENTS[self.experiment].workload.needs_tools or Setup.LVMCACHE in self.setups


@dataclass(slots=True)
class Evidence:
    """Raw records of one set-up, for the picture."""

    timeline: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    dumps: list[dict[str, Any]] = field(default_factory=list)
    serial: str = ""
    journal: list[dict[str, Any]] = field(default_factory=list)  # the agent's, of every guest
    cost_report: str = ""  # what `elastio report` prints in the first guest


def open_endpoint(plan: Plan, scaled: Scaled, folder: Path) -> Ec2Endpoint:
    """A cloud whose GiB and MiB/s are worth what the scale says, and as quick as the scale says.

    It lets nobody detach or delete what is marked dirty, as the shipped policy has it.
    """
    scale = Scale(gib_bytes=scaled.unit_bytes, mib_s_bytes=-(-scaled.cache_bytes_s // API_MIB_S))
    endpoint = Ec2Endpoint(folder, scale=scale, latency_scale=plan.scale, seed=plan.seed)
    endpoint.guards_dirty = True
    return endpoint


def patience_s(scaled: Scaled) -> float:
    """How long a workload may take before it is given up."""
    slowest = scaled.experiment.workload.moved_bytes(scaled) / scaled.backing_bytes_s
    return PATIENCE * (slowest + scaled.experiment.compute_s * scaled.time) + 120


class Trial:
    """A set-up with its own endpoint and guests, which end with the context.

    Call `prepare`, `start`, `finish`, `conclude` in this order, from any thread but one at a time. All but `start` may
    take minutes, none takes for ever. They raise GuestError or another HypervisorError; `finish` raises CancelledError
    when `cancelled` is set.
    """

    def __init__(self, plan: Plan, setup: Setup, image: GuestImage, say: Say) -> None:
        self.plan, self.setup, self.scaled = plan, setup, plan.scaled()
        self._image, self._tell = image, say
        self._stack = ExitStack()
        self.guests: list[Guest] = []
        self._cloud: Account | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def endpoint(self) -> Account:
        """The cloud of this set-up, from `prepare` on."""
        if self._cloud is None:
            raise RuntimeError("prepare the set-up first")
        return self._cloud

    def say(self, text: str) -> None:
        """A line for whoever watches."""
        self._tell(f"{self.plan.experiment} {self.setup}: {text}")

    def prepare(self) -> None:
        """Boot the guests and put device, filesystem, agent and caps in place."""
        self.say(f"booting {self.plan.vms} guest(s)")
        enter = self._stack.enter_context
        folder = Path(enter(scratch_folder("elastio-testbed-")))
        endpoint = self._cloud = enter(open_endpoint(self.plan, self.scaled, folder / "cloud"))
        for n in range(self.plan.vms):
            guest = Guest(self._image, folder / f"vm{n}", f"vm{n}", self.setup, self.scaled)
            self.guests.append(guest)
            enter(guest.vm)
            guest.prepare(endpoint)

    def start(self) -> None:
        """Start the application in every guest."""
        self.say("running")
        for guest in self.guests:
            guest.start_workload(self.plan.seed)

    def limit_s(self) -> float:
        """The longest that `finish` takes."""
        return patience_s(self.scaled) + len(self.guests) * (IDLE_AGAIN_S + CALLS_S) + SETTLE_S

    def finish(self, cancelled: threading.Event) -> None:
        """Wait until the application has ended and nothing of its caches is left; then stop recording."""
        self._wait_for_workloads(cancelled)
        if self.setup is Setup.ADAPTIVE:
            self.say("waiting for the caches to be flushed and released")
            for guest in self.guests:
                guest.wait_for(lambda status: _is_at_rest(status, cancelled), IDLE_AGAIN_S, "the volume to be released")
            self._settle()
        for guest in self.guests:
            guest.check(["systemctl", "stop", "recorder"])

    def _settle(self) -> None:
        try:
            self.endpoint.settle(SETTLE_S)
        except TimeoutError as error:
            raise GuestError(f"{self.setup}: the cloud did not come to rest: {error}") from error

    def _wait_for_workloads(self, cancelled: threading.Event) -> None:
        seconds = patience_s(self.scaled)
        end = time.monotonic() + seconds
        waiting = list(self.guests)
        disturbances = self._disturbances()
        while waiting:
            for guest, disturbance in disturbances:
                disturbance.look(len(guest.dumps()), time.monotonic())
            for guest in list(waiting):
                state = guest.workload_state()
                if state == "done":
                    waiting.remove(guest)
                elif state != "running":
                    log = guest.check(["journalctl", "--no-pager", "-u", "workload", "-n", "20", "-o", "cat"])
                    raise GuestError(f"{guest.name}: {state}: {log}")
            if waiting and time.monotonic() > end:
                raise GuestError(f"{waiting[0].name}: the workload is not done after {seconds:.0f} s")
            if waiting and cancelled.wait(POLL_S):
                raise CancelledError
        for guest, disturbance in disturbances:
            disturbance.end()
            if not disturbance.has_struck:
                raise GuestError(f"{guest.name}: burst {self.plan.disturb} was over before it could be disturbed")

    def _disturbances(self) -> list[tuple[Guest, Disturbance]]:
        burst = self.plan.disturb if self.setup is Setup.ADAPTIVE else None
        if burst is None:
            return []
        return [(guest, Disturbance(guest.vm, burst, self.scaled.compute_each_s)) for guest in self.guests]

    def kernel(self) -> str:
        """The kernel's release in the first guest."""
        return self.guests[0].check(["uname", "-r"])

    # --- concluding ------------------------------------------------------------------------------------------

    def conclude(self) -> tuple[SetupResult, Evidence]:
        """Collect what was recorded and compare every byte that was written: a load of its own."""
        first = self.guests[0]
        dumps = [guest.dumps() for guest in self.guests]
        evidence = Evidence(first.timeline(), [], _volume_rows(self.endpoint), dumps[0], first.serial)
        reports = []
        if self.setup is Setup.ADAPTIVE:
            evidence.decisions = first.decisions()
            evidence.journal = [record for guest in self.guests for record in _journal(guest)]
            reports = [guest.report() for guest in self.guests]
            evidence.cost_report = first.check(["elastio", "report"], timeout_s=60)
        result = self._result(dumps, reports, self._governed(evidence))
        self.say(f"completed in {result.completion_s:.1f} s, {result.agbs:.0f} AGBs")
        return result, evidence

    def _governed(self, evidence: Evidence) -> dict[float, Governed]:
        """What became of both volumes' bandwidth in the first guest's boosts, by their begin."""
        if not evidence.decisions or not evidence.timeline:
            return {}
        rates = rates_of(evidence.timeline, evidence.serial, is_static=False)
        intervals = intervals_of(evidence.decisions, evidence.timeline[-1]["t"])
        slow = self.scaled.backing_bytes_s / 1e6
        return governed(rates[APPLICATION], rates[BACKING], intervals, evidence.dumps, slow)

    def _phases(self, vm: str, report: dict[str, Any], dumps: list[dict[str, Any]]) -> list[Phase]:
        """The boosts of one guest's ledger, with what the application dumped during each."""
        rows = [row for row in report["phases"] if row["steps"]["boost_s"] is not None]
        spans = [(_epoch(row["begun"]), _epoch(row["closed"] or row["begun"])) for row in rows]
        volumes = {volume.id: volume for volume in self.endpoint.volumes()}
        dumped = dumped_by_phase(spans, dumps)
        return [
            _phase(vm, row, volumes.get(row["volume_id"]), size, self.scaled, self.endpoint.scale)
            for row, size in zip(rows, dumped, strict=True)
        ]

    def _result(
        self, dumps: list[list[dict[str, Any]]], reports: list[dict[str, Any]], boosts: dict[float, Governed]
    ) -> SetupResult:
        scaled, guests = self.scaled, self.guests
        total_s = max(d[-1]["ended"] for d in dumps) - min(d[0]["began"] for d in dumps)
        completion_s = max(d[-1]["ended"] - d[0]["ended"] for d in dumps)
        cache = _cache_agbs(self.endpoint)
        cache += sum(agbs(scaled.cache_bytes_s / 1e6, guest.fixed_cache_bytes, total_s) for guest in guests)
        backing = sum(agbs(guest.cap_bytes_s / 1e6, guest.backing_bytes, total_s) for guest in guests)
        left = len(self.endpoint.live_volumes()) + sum(len(guest.vm.disks()) - guest.own_disks for guest in guests)
        verified = [guest.verify() for guest in guests]
        return SetupResult(
            setup=self.setup,
            completion_s=round(completion_s, 3),
            total_s=round(total_s, 3),
            agbs=round(backing + cache, 3),
            cache_agbs=round(cache, 3),
            app_write_mb_s=round(_write_mb_s(dumps), 3),
            dumps_s=tuple(round(d["ended"] - d["began"], 3) for d in dumps[0]),
            checksums_ok=all(v["ok"] for v in verified),
            volumes_left=left,
            phases=tuple(
                with_governed(p, boosts) if n == 0 else p
                for n, report in enumerate(reports)
                for p in self._phases(guests[n].name, report, dumps[n])
            ),
            checksums={
                f"{g.name}/{k}": c for g, v in zip(guests, verified, strict=True) for k, c in v["checksums"].items()
            },
            ledger_cache_agbs=round(sum(r["vm"]["cache_agbs"] for r in reports), 3) if reports else None,
            figures=tuple(d.get("figures", {}) for d in dumps[0]),
        )


def _journal(guest: Guest) -> list[dict[str, Any]]:
    text = guest.vm.agent.read_file(JOURNAL).decode()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def cloud_s(history: Sequence[tuple[float, str]]) -> float | None:
    """Seconds that the cloud took to create and then to attach a volume, from its history; None if it did not."""
    first: dict[str, float] = {}
    for at, state in history:
        first.setdefault(state, at)
    needed = ("creating", "available", "in-use/attaching", "in-use/attached")
    if any(state not in first for state in needed):
        return None
    created, available, attaching, attached = (first[state] for state in needed)
    return round(available - created + attached - attaching, 3)


def _is_at_rest(status: dict[str, Any], cancelled: threading.Event) -> bool:
    if cancelled.is_set():
        raise CancelledError
    return status["phase"] == "idle" and status["owned"] == [] and status["cycle"] is None


def _epoch(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def _write_mb_s(dumps: list[list[dict[str, Any]]]) -> float:
    every = [d for guest in dumps for d in guest]
    # A workload whose dumps are not writing alone says how long they wrote.
    seconds = sum(d.get("write_s", d["ended"] - d["began"]) for d in every)
    return float(sum(d["bytes"] for d in every) / seconds / 1e6)


def _cache_agbs(endpoint: Account) -> float:
    """What the cloud saw, of every volume that there ever was."""
    return sum(volume_agbs(volume, endpoint.scale) for volume in endpoint.volumes())


def volume_agbs(volume: Bought, scale: Scale) -> float:
    """From its creation to its end, or until now."""
    ended = volume.deleted_at if volume.deleted_at is not None else time.time()
    bandwidth = volume.throughput_mib_s * scale.mib_s_bytes / 1e6
    return agbs(bandwidth, volume.size_gib * scale.gib_bytes, ended - volume.created_at)


def _volume_rows(endpoint: Account) -> list[dict[str, Any]]:
    return [
        {
            "id": v.id,
            "serial": v.serial,
            "size_gb": v.size_gib * endpoint.scale.gib_bytes / GB,
            "created_at": v.created_at,
            "deleted_at": v.deleted_at,
        }
        for v in endpoint.volumes()
    ]


def with_governed(phase: Phase, boosts: dict[float, Governed]) -> Phase:
    """The phase with what was measured of its first boost."""
    own = [boosts[begin] for begin in sorted(boosts) if phase.begun <= begin <= phase.ended]
    return replace(phase, governed=own[0]) if own else phase


def _phase(vm: str, row: dict[str, Any], volume: Bought | None, dumped: int, scaled: Scaled, scale: Scale) -> Phase:
    steps, cloud = row["steps"], cloud_s(volume.history) if volume else None
    speed = Bandwidths(scaled.backing_bytes_s, scaled.cache_bytes_s)
    return Phase(
        vm=vm,
        begun=_epoch(row["begun"]),
        ended=_epoch(row["closed"] or row["begun"]),
        size_gb=round(row["provisioned_size_bytes"] / GB, 4),
        attach_s=steps["boost_s"],
        attached_s=steps["attached_s"],
        dirty_peak_gb=round(row["peak_dirty_bytes"] / GB, 4),
        evicted_gb=round(row["written_through_bytes"] / GB, 4),
        flush_s=steps["flush_s"],
        steps_s={name.removesuffix("_s"): value for name, value in steps.items() if name not in NO_STEPS},
        cloud_s=cloud,
        own_share_s=own_share_s(steps["boost_s"], cloud),
        dumped_gb=round(dumped / GB, 4),
        cache_agbs=round(volume_agbs(volume, scale) if volume else row["cache_agbs"], 3),
        cache_agbs_bound=round(least_agbs(dumped, speed), 3),
    )
