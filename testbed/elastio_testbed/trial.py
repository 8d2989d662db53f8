"""One set-up on fresh guests, in separate steps, so that several set-ups can be interleaved."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from elastio.units import GB, agbs
from elastio_testbed.adopted import PACKAGES, AdoptedGuest
from elastio_testbed.bandwidth_use import BandwidthUse, bandwidth_use, intervals_of
from elastio_testbed.billing import Billing
from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.console import Say
from elastio_testbed.disturbance import Disturbance
from elastio_testbed.dollars import bill
from elastio_testbed.ec2 import Ec2Endpoint, Purchase, Scale
from elastio_testbed.experiment import Ahead, Scaled, Setup
from elastio_testbed.hypervisor import CreditMeter, GuestError
from elastio_testbed.image import TOOLS, GuestImage
from elastio_testbed.lower_bound import Bandwidths, dumped_by_boost, least_agbs
from elastio_testbed.machine import Guest
from elastio_testbed.parallel import CancelledError
from elastio_testbed.rates import APPLICATION, BACKING, rates_of
from elastio_testbed.result import Boost, SetupResult, own_share_s
from elastio_testbed.scratch import scratch_folder

POLL_S = 1.0
# A workload is given up after this many times its expected duration.
TIMEOUT_FACTOR = 4.0
IDLE_AGAIN_S = 600.0
SETTLE_S = 60.0
CALLS_S = 120.0  # the last calls into a guest
EC2, OPENSTACK = "ec2", "openstack"
JOURNAL = "/var/lib/elastio/journal.jsonl"
# The times of a boost that are not steps on the way to writeback mode.
NO_STEPS = {"boost_s", "own_s", "flush_s", "attached_s"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `seed`: of the workload's data; `cloud`: EC2 or OPENSTACK; `suite`: see `build_guest_image`;
    `disturb`: the number of the burst of the adaptive set-up that is disturbed.

    `fixed_cache_gb`: the published size of every cache, instead of a learned one. `ahead`: how the agent learns of
    bursts before they begin; None: it does not. `adopted`: one of `adopted.CASES`, of which the volume of the adaptive
    set-up is; None: it was blank when it became adaptive.
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
    ahead: Ahead | None = None
    adopted: str | None = None

    def scaled(self) -> Scaled:
        published = EXPERIMENTS[self.experiment]
        if self.fixed_cache_gb is not None:
            published = replace(published, initial_cache_gb=self.fixed_cache_gb, is_size_fixed=True)
        return Scaled(published, self.scale, self.bandwidth)

    @property
    def packages(self) -> tuple[str, ...]:
        """What the guests need additionally. All set-ups of a run use the same image."""
        needs_tools = EXPERIMENTS[self.experiment].workload.needs_tools or Setup.LVMCACHE in self.setups
        return tuple(dict.fromkeys((*(TOOLS if needs_tools else ()), *(PACKAGES if self.adopted else ()))))

    def guest(self, setup: Setup, image: GuestImage, folder: Path, name: str) -> Guest:
        """A guest of this set-up; it is not started."""
        adopted = self.adopted if setup is Setup.ADAPTIVE else None
        guest = (AdoptedGuest if adopted else Guest)(image, folder, name, setup, self.scaled())
        guest.be_made_as(adopted or guest.filesystem)
        return guest


@dataclass(slots=True)
class Evidence:
    """Raw records of one set-up."""

    timeline: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    dumps: list[dict[str, Any]] = field(default_factory=list)
    serial: str = ""
    journal: list[dict[str, Any]] = field(default_factory=list)  # the agent's, of every guest
    cost_report: str = ""  # output of `elastio report` in the first guest


def open_endpoint(plan: Plan, scaled: Scaled, folder: Path) -> Ec2Endpoint:
    """A cloud with scaled GiB, MiB/s and delays.

    It denies to detach or delete volumes with a dirty tag, as the IAM policy of the documentation does.
    """
    scale = Scale(gib_bytes=scaled.unit_bytes, mib_s_bytes=scaled.unit_bytes_s)
    endpoint = Ec2Endpoint(folder, scale=scale, latency_scale=plan.scale, seed=plan.seed)
    endpoint.guards_dirty = True
    return endpoint


@contextmanager
def running_guest(
    plan: Plan, setup: Setup, image: GuestImage, scaled: Scaled | None = None, **options: Any
) -> Iterator[tuple[Guest, Ec2Endpoint]]:
    """One prepared guest, scaled as planned or as given, and its cloud; `options` are those of `Guest`.

    Raises HypervisorError.
    """
    scaled = scaled or plan.scaled()
    with scratch_folder("elastio-testbed-") as name, open_endpoint(plan, scaled, Path(name) / "cloud") as endpoint:
        guest = Guest(image, Path(name) / "vm", "vm0", setup, scaled, **options)
        with guest.vm:
            guest.prepare(endpoint)
            yield guest, endpoint


def workload_timeout_s(scaled: Scaled) -> float:
    """Timeout of a workload."""
    slowest = scaled.experiment.workload.moved_bytes(scaled) / scaled.backing_bytes_s
    return TIMEOUT_FACTOR * (slowest + scaled.experiment.compute_s * scaled.time) + 120


class Trial:
    """A set-up with its own endpoint and guests, which end with the context.

    Call `prepare`, `start`, `finish` and `conclude` in this order, from one thread at a time. All but `start` may take
    minutes, and all have timeouts. They raise GuestError or another HypervisorError; `finish` raises CancelledError if
    `cancelled` is set.
    """

    def __init__(self, plan: Plan, setup: Setup, image: GuestImage, say: Say) -> None:
        self.plan, self.setup, self.scaled = plan, setup, plan.scaled()
        self._image, self._say = image, say
        self._stack = ExitStack()
        self.guests: list[Guest] = []
        self.meters: list[CreditMeter] = []
        self.endpoint: Billing  # the cloud of this set-up, from `prepare` on

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def say(self, text: str) -> None:
        """Report a line of progress."""
        self._say(f"{self.plan.experiment} {self.setup}: {text}")

    def prepare(self) -> None:
        """Boot the guests and set up device, filesystem, agent and bandwidth limits."""
        self.say(f"booting {self.plan.vms} guest(s)")
        enter = self._stack.enter_context
        folder = Path(enter(scratch_folder("elastio-testbed-")))
        endpoint = self.endpoint = enter(open_endpoint(self.plan, self.scaled, folder / "cloud"))
        for n in range(self.plan.vms):
            guest = self.plan.guest(self.setup, self._image, folder / f"vm{n}", f"vm{n}")
            guest.ahead = self.plan.ahead
            self.guests.append(guest)
            enter(guest.vm)
            guest.prepare(endpoint)
            self.meters += [enter(meter) for meter in _meters(guest)]

    def start(self) -> None:
        """Start the application in every guest."""
        self.say("running")
        for meter in self.meters:
            meter.start()
        for guest in self.guests:
            guest.start_workload(self.plan.seed)

    def limit_s(self) -> float:
        """Timeout of `finish`, in seconds."""
        return workload_timeout_s(self.scaled) + len(self.guests) * (IDLE_AGAIN_S + CALLS_S) + SETTLE_S

    def finish(self, cancelled: threading.Event) -> None:
        """Wait until the application has ended and its caches are released; then stop recording."""
        self._wait_for_workloads(cancelled)
        if self.setup is Setup.ADAPTIVE:
            self.say("waiting for the caches to be flushed and released")
            for guest in self.guests:
                guest.wait_for(lambda status: _is_at_rest(status, cancelled), IDLE_AGAIN_S, "the volume to be released")
            self._settle()
        for meter in self.meters:
            meter.stop()
        for guest in self.guests:
            guest.check(["systemctl", "stop", "recorder"])

    def _settle(self) -> None:
        try:
            self.endpoint.settle(SETTLE_S)
        except TimeoutError as error:
            raise GuestError(f"{self.setup}: the cloud did not settle: {error}") from error

    def _wait_for_workloads(self, cancelled: threading.Event) -> None:
        seconds = workload_timeout_s(self.scaled)
        end = time.monotonic() + seconds
        waiting = list(self.guests)
        disturbances = self._disturbances()
        while waiting:
            for guest, disturbance in disturbances:
                disturbance.update(len(guest.dumps()), time.monotonic())
            for guest in list(waiting):
                state = guest.workload_state()
                if state == "done":
                    waiting.remove(guest)
                elif state != "running":
                    log = guest.check(["journalctl", "--no-pager", "-u", "workload", "-n", "20", "-o", "cat"])
                    raise GuestError(f"{guest.name}: {state}: {log}")
            if waiting and time.monotonic() > end:
                raise GuestError(f"{waiting[0].name}: the workload did not finish within {seconds:.0f} s")
            if waiting and cancelled.wait(POLL_S):
                raise CancelledError
        for guest, disturbance in disturbances:
            disturbance.end()
            if not disturbance.has_struck:
                raise GuestError(f"{guest.name}: burst {self.plan.disturb} ended before it was disturbed")

    def _disturbances(self) -> list[tuple[Guest, Disturbance]]:
        burst, guests = self.plan.disturb, self.guests if self.setup is Setup.ADAPTIVE else []
        return [(guest, Disturbance(guest.vm, burst, self.scaled.compute_each_s)) for guest in guests if burst]

    def kernel(self) -> str:
        """The kernel's release in the first guest."""
        return self.guests[0].check(["uname", "-r"])

    # --- concluding ------------------------------------------------------------------------------------------

    def conclude(self) -> tuple[SetupResult, Evidence]:
        """Collect the records and compare every byte that was written, which is a load, too."""
        first = self.guests[0]
        dumps = [guest.dumps() for guest in self.guests]
        evidence = Evidence(first.timeline(), [], _volume_rows(self.endpoint), dumps[0], first.serial)
        reports = []
        if self.setup is Setup.ADAPTIVE:
            evidence.decisions = first.decisions()
            evidence.journal = [record for guest in self.guests for record in _journal(guest)]
            reports = [guest.report() for guest in self.guests]
            evidence.cost_report = first.check(["elastio", "report"], timeout_s=60)
        result = self._result(dumps, reports, self._bandwidth_use(evidence))
        self.say(f"completed in {result.completion_s:.1f} s, {result.agbs:.0f} AGBs")
        return result, evidence

    def _bandwidth_use(self, evidence: Evidence) -> dict[float, BandwidthUse]:
        """The use of bandwidth in the first guest's boosts, by their start."""
        if not evidence.decisions or not evidence.timeline:
            return {}
        rates = rates_of(evidence.timeline, evidence.serial, is_static=False)
        intervals = intervals_of(evidence.decisions, evidence.timeline[-1]["t"])
        slow = self.scaled.backing_bytes_s / 1e6
        return bandwidth_use(rates[APPLICATION], rates[BACKING], intervals, evidence.dumps, slow)

    def _boosts(self, vm: str, report: dict[str, Any], dumps: list[dict[str, Any]]) -> list[Boost]:
        """The boosts of one guest's ledger, with the bytes that the application dumped during each."""
        rows = [row for row in report["phases"] if row["steps"]["boost_s"] is not None]
        spans = [(_epoch(row["begun"]), _epoch(row["closed"] or row["begun"])) for row in rows]
        volumes = {volume.id: volume for volume in self.endpoint.volumes()}
        dumped = dumped_by_boost(spans, dumps)
        return [
            _boost(vm, row, volumes.get(row["volume_id"]), size, self.scaled, self.endpoint.scale)
            for row, size in zip(rows, dumped, strict=True)
        ]

    def _result(
        self, dumps: list[list[dict[str, Any]]], reports: list[dict[str, Any]], boosts: dict[float, BandwidthUse]
    ) -> SetupResult:
        scaled, guests = self.scaled, self.guests
        total_s = max(d[-1]["ended"] for d in dumps) - min(d[0]["began"] for d in dumps)
        completion_s = max(d[-1]["ended"] - d[0]["ended"] for d in dumps)
        cache = sum(volume_agbs(volume, self.endpoint.scale) for volume in self.endpoint.volumes())
        cache += sum(agbs(scaled.cache_bytes_s / 1e6, guest.fixed_cache_bytes, total_s) for guest in guests)
        backing = sum(agbs(guest.cap_bytes_s / 1e6, guest.backing_bytes, total_s) for guest in guests)
        left = len(self.endpoint.live_volumes()) + sum(len(guest.vm.disks()) - len(guest.kept) for guest in guests)
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
            boosts=tuple(
                with_bandwidth_use(p, boosts) if n == 0 else p
                for n, report in enumerate(reports)
                for p in self._boosts(guests[n].name, report, dumps[n])
            ),
            checksums={
                f"{g.name}/{k}": c for g, v in zip(guests, verified, strict=True) for k, c in v["checksums"].items()
            },
            ledger_cache_agbs=round(sum(r["vm"]["cache_agbs"] for r in reports), 3) if reports else None,
            figures=tuple(d.get("figures", {}) for d in dumps[0]),
            dollars=bill(scaled, self.setup, len(guests), total_s, self.endpoint, time.time()),
            least_credit_share=min((round(meter.least_share, 5) for meter in self.meters), default=None),
        )


def _meters(guest: Guest) -> list[CreditMeter]:
    """What keeps the credits of the guest's data volume; empty if it has none in this set-up."""
    bucket = None if guest.setup is Setup.STATIC_FAST else guest.scaled.bucket
    return [] if bucket is None else [CreditMeter(guest.vm, guest.serial, bucket, guest.scaled.first_credits_bytes)]


def _journal(guest: Guest) -> list[dict[str, Any]]:
    text = guest.vm.agent.read_file(JOURNAL).decode()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def cloud_s(history: Sequence[tuple[float, str]]) -> float | None:
    """Seconds that the cloud took to create and attach a volume, from its history; None if it did not."""
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
    # A workload whose dumps also read reports the time spent writing.
    seconds = sum(d.get("write_s", d["ended"] - d["began"]) for d in every)
    return float(sum(d["bytes"] for d in every) / seconds / 1e6)


def volume_agbs(volume: Purchase, scale: Scale) -> float:
    """AGBs from a volume's creation to its deletion, or until now."""
    ended = volume.deleted_at if volume.deleted_at is not None else time.time()
    bandwidth = volume.throughput_mib_s * scale.mib_s_bytes / 1e6
    return agbs(bandwidth, volume.size_gib * scale.gib_bytes, ended - volume.created_at)


def _volume_rows(endpoint: Billing) -> list[dict[str, Any]]:
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


def with_bandwidth_use(boost: Boost, boosts: dict[float, BandwidthUse]) -> Boost:
    """The boost with its measured use of bandwidth."""
    own = [boosts[begin] for begin in sorted(boosts) if boost.begun <= begin <= boost.ended]
    return replace(boost, bandwidth_use=own[0]) if own else boost


def _boost(vm: str, row: dict[str, Any], volume: Purchase | None, dumped: int, scaled: Scaled, scale: Scale) -> Boost:
    steps, cloud = row["steps"], cloud_s(volume.history) if volume else None
    speed = Bandwidths(scaled.backing_bytes_s, scaled.cache_bytes_s)
    return Boost(
        vm=vm,
        begun=_epoch(row["begun"]),
        ended=_epoch(row["closed"] or row["begun"]),
        size_gb=round(row["provisioned_size_bytes"] / GB, 4),
        attach_s=steps["boost_s"],
        attached_s=steps["attached_s"],
        dirty_peak_gb=round(row["peak_dirty_bytes"] / GB, 4),
        written_through_gb=round(row["written_through_bytes"] / GB, 4),
        flush_s=steps["flush_s"],
        steps_s={name.removesuffix("_s"): value for name, value in steps.items() if name not in NO_STEPS},
        cloud_s=cloud,
        own_share_s=own_share_s(steps["boost_s"], cloud),
        dumped_gb=round(dumped / GB, 4),
        cache_agbs=round(volume_agbs(volume, scale) if volume else row["cache_agbs"], 3),
        cache_agbs_bound=round(least_agbs(dumped, speed), 3),
    )
