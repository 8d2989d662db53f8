"""Two applications in a guest, in cgroups of their own, and what each got of the adaptive device."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any

from elastio.core.capacity import OF_BACKING
from elastio.units import MB, MIB
from elastio_testbed.ec2 import Ec2Endpoint
from elastio_testbed.experiment import Experiment, Scaled, Setup
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import DATA, PROGRAMS, SMALL_MIB, Guest, Tables
from elastio_testbed.sharing.controls import BFQ, WEIGHTS, WHY_ABSENT
from elastio_testbed.sharing.patterns import JOBS
from elastio_testbed.trial import Plan, running_guest
from elastio_testbed.workloads.dumps import Dumps

# Of sizes and of the cloud's delays. Volumes are those of `demo`; a cache has room for all that is written.
TIME = 0.12
# No pause between two runs ends a boost.
VOLUMES = Experiment("sharing", (), 0.0, 50.0, 33.0, 128.0, 30.0, Dumps(), inactivity_delay_s=3000.0)
EVERY_S = 0.25
FILE_BYTES = 8 * MIB
# From the start of the programs until the first request; an emulated processor needs longest.
READY_S = 6.0
BOOST_S, FLUSH_S, CALL_S, LAYOUT_S = 120, 240, 60.0, 300.0
PREFIX = "/var/tmp/beside-"
LAYOUT = f"{PREFIX}files.json"


@dataclass(frozen=True, slots=True)
class Service:
    """A part of an application (0 or 1), with a weight among its siblings and a share (0 to 1) of the capacity."""

    name: str
    application: int
    weight: int
    share: float


# Two weights where the kernel keeps them. Elsewhere all services weigh the same, so the first application is two.
WEIGHED = (Service("first", 0, 200, 2 / 3), Service("second", 1, 100, 1 / 3))
UNWEIGHED = (Service("first-a", 0, 100, 1 / 3), Service("first-b", 0, 100, 1 / 3), Service("second", 1, 100, 1 / 3))


@dataclass(frozen=True, slots=True)
class Work:
    """What an application does for some seconds, with `jobs` threads; 0: nothing, or only `command`, for a shell.

    `rate_mb_s` 0: as much as it gets. `limits_mb_s`: of reads, writes. `is_synced`: each write ends when it is durable.
    """

    seconds: float
    sizes: tuple[int, ...]
    is_random: bool
    reads: float
    rate_mb_s: float = 0.0
    limits_mb_s: tuple[float, float] | None = None
    jobs: int = JOBS
    is_synced: bool = False
    command: str = ""

    def part(self, service: Service, services: Sequence[Service], number: str) -> dict[str, Any]:
        """The turn of one service, see `guest/beside.py`. `number`: MAJOR:MINOR of the adaptive device."""
        parts = sum(each.application == service.application for each in services)
        limits = "" if self.limits_mb_s is None else _limits(number, self.limits_mb_s, service.share)
        return {
            "seconds": self.seconds,
            "jobs": self.jobs // parts,
            "sizes": self.sizes,
            "random": self.is_random,
            "reads": self.reads,
            "rate_bytes_s": self.rate_mb_s * MB / parts,
            "limits": limits,
            "synced": self.is_synced,
            "command": self.command,
        }


@dataclass(frozen=True, slots=True)
class Seen:
    """Of each application the lines of its report, see `guest/beside.py`.

    By interval, the requests at the device, and the bytes that were written to the slow volume.
    """

    intervals: tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]
    in_flight: dict[int, float]
    below_bytes: dict[int, int]


def partition(capacity_mb_s: float, reads: float) -> tuple[float, float]:
    """What a strict partition divides of reads and of writes, by their part of what applications do."""
    return capacity_mb_s * reads, capacity_mb_s * (1 - reads)


def _limits(number: str, mb_s: tuple[float, float], share: float) -> str:
    read, write = (f"{round(each * share * MB)}" if each else "max" for each in mb_s)
    return f"{number} rbps={read} wbps={write} riops=max wiops=max"


class Applications:
    """The applications of one guest. Every method has a timeout and raises GuestError or another HypervisorError."""

    def __init__(self, guest: Guest, endpoint: Ec2Endpoint) -> None:
        self.guest, self._endpoint = guest, endpoint
        self._scheduler = f"/sys/block/{guest.disk_name()}/queue/scheduler"
        self.name = guest.check(["sh", "-c", f"basename $(readlink /sys/block/{guest.disk_name()}/bcache/dev)"])
        self.number = guest.check(["cat", f"/sys/block/{self.name}/dev"])
        self.has_weights = self._succeeds("test", "-e", "/sys/fs/cgroup/system.slice/io.weight")
        self._has = {
            WEIGHTS: self.has_weights,
            BFQ: self._succeeds("sh", "-c", f"modprobe bfq; grep bfq {self._scheduler}"),
        }
        self.services = WEIGHED if self.has_weights else UNWEIGHED
        self._tables: Tables = {}

    @property
    def slow_mb_s(self) -> float:
        """What applications can have of the slow volume, without a flush."""
        return OF_BACKING * self.guest.scaled.backing_bytes_s / MB

    def absent(self, controls: Sequence[str]) -> dict[str, str]:
        """Which of these controls the guest does not have, and why."""
        return {control: WHY_ABSENT[control] for control in controls if not self._has.get(control, True)}

    @contextmanager
    def scheduled(self, scheduler: str) -> Iterator[None]:
        """The disk below the adaptive device with this scheduler of the kernel; afterwards with its own again."""
        own = self.guest.check(["sed", r"s/.*\[\(.*\)\].*/\1/", self._scheduler])
        self._schedule(scheduler)
        try:
            yield
        finally:
            self._schedule(own)

    def _schedule(self, scheduler: str) -> None:
        self.guest.check(["sh", "-c", f"echo {scheduler} > {self._scheduler}"], timeout_s=CALL_S)

    def prepare(self) -> None:
        """Make the files at full speed. Until `boost` the agent is paused."""
        guest = self.guest
        # What the page cache writes is nobody's, so it counts as a load, also for some seconds after the last file.
        guest.check(["elastio", "pause"], timeout_s=CALL_S)
        guest.check(["systemctl", "stop", "recorder"], timeout_s=CALL_S)
        self.make_files([(f"{DATA}/{each.name}", self._jobs(each), FILE_BYTES) for each in self.services])
        self.share({})

    def make_files(self, folders: Sequence[tuple[str, int, int]]) -> None:
        """Make so many files of so many bytes in each of these folders, while nothing limits the volume."""
        guest = self.guest
        guest.vm.set_limit(guest.serial, None)
        for folder, count, size_bytes in folders:
            spec = {"directory": folder, "jobs": count, "file_bytes": size_bytes}
            guest.vm.agent.write_file(LAYOUT, json.dumps(spec).encode())
            guest.check([*_program("prepare"), LAYOUT], timeout_s=LAYOUT_S)
        guest.check(["sync"], timeout_s=CALL_S)
        guest.vm.set_limit(guest.serial, guest.cap_bytes_s)

    def share(self, settings: Mapping[str, object]) -> None:
        """Put this `[share]` in force; without a boost for any load."""
        tables: Tables = {**self._tables, "share": {"may_boost": '["nobody.service"]', **settings}}
        self.guest.write_config(self._endpoint, tables)
        self.guest.check(["systemctl", "reload", "elastiod"], timeout_s=CALL_S)

    def with_target(self, target_ms: float) -> dict[str, str]:
        """Settings of `share`: shares, and this latency target for the first application."""
        named = [f'"{each.name}.service" = {target_ms:g}' for each in self.services if each.application == 0]
        return {"enabled": "true", "latency_ms": f"{{ {', '.join(named)} }}"}

    def boost(self, *, flushes: bool) -> None:
        """Buy a cache, which stays until the end or the next boost, with bandwidth for a flush beside applications."""
        self.guest.check(["elastio", "flush", "--wait", "--timeout", str(FLUSH_S)], timeout_s=FLUSH_S + 30)
        self._tables = {} if flushes else {"cache": {"drain_bandwidth_mb_s": 0}}
        self.share({})
        self.guest.check(["elastio", "resume"], timeout_s=CALL_S)
        self.guest.check(["elastio", "boost", "--wait", "--timeout", str(BOOST_S)], timeout_s=BOOST_S + 30)

    def require_phase(self, phase: str) -> None:
        found = self.guest.status()["phase"]
        if found != phase:
            raise GuestError(f"the agent is {found}, not {phase}, so nothing can be measured; {self.guest.agent_log()}")

    def run(self, works: tuple[Sequence[Work], Sequence[Work]], *, are_weighed: bool, every_s: float = EVERY_S) -> Seen:
        """Let both applications do their work, side by side, and report every `every_s`."""
        now_s = float(self.guest.check(["python3", "-c", "import time; print(time.monotonic())"], timeout_s=CALL_S))
        for service in self.services:
            turns = [work.part(service, self.services, self.number) for work in works[service.application]]
            disk = self.name if service is self.services[-1] else ""
            times = {"begins_s": now_s + READY_S, "every_s": every_s}
            spec = {"turns": turns, **times, "disk": disk, "below": self.guest.disk_name()}
            self._write_spec(service, spec)
            weight = service.weight if are_weighed else 100
            unit = ["systemd-run", "--collect", f"--unit={service.name}", f"--property=IOWeight={weight}"]
            self.guest.vm.agent.write_file(_report(service), b"")
            self.guest.check([*unit, *_program("run"), _spec(service), _report(service)], timeout_s=CALL_S)
        took_s = max(sum(work.seconds for work in each) for each in works)
        time.sleep(READY_S + took_s)
        return self._seen()

    def _seen(self) -> Seen:
        found = Seen(([], []), {}, {})
        for service in self.services:
            for line in self._lines(service):
                if "in_flight" in line:
                    found.in_flight[line["interval"]] = line["in_flight"]
                    found.below_bytes[line["interval"]] = line["below_bytes"]
                else:
                    found.intervals[service.application].append(line)
        return found

    def _lines(self, service: Service) -> list[Mapping[str, Any]]:
        end_s = time.monotonic() + CALL_S
        while True:
            lines = [json.loads(line) for line in self.guest.vm.agent.read_file(_report(service)).splitlines()]
            last = lines[-1] if lines else {}
            if "error" in last:
                raise GuestError(f"{service.name}: {last['error']}")
            if "done" in last:
                return lines[:-1]
            if time.monotonic() > end_s:
                raise GuestError(f"{service.name} does not end")
            time.sleep(1.0)

    def _jobs(self, service: Service) -> int:
        return JOBS // sum(each.application == service.application for each in self.services)

    def _write_spec(self, service: Service, more: Mapping[str, Any]) -> None:
        spec = {"directory": f"{DATA}/{service.name}", "file_bytes": FILE_BYTES, "jobs": self._jobs(service), **more}
        self.guest.vm.agent.write_file(_spec(service), json.dumps(spec).encode())

    def _succeeds(self, *command: str) -> bool:
        return self.guest.vm.agent.run(list(command), timeout_s=CALL_S).returncode == 0


def _program(do: str) -> list[str]:
    return ["python3", f"{PROGRAMS}/beside.py", do]


def _spec(service: Service) -> str:
    return f"{PREFIX}{service.name}.json"


def _report(service: Service) -> str:
    return f"{PREFIX}{service.name}.report"


@contextmanager
def applications(image: GuestImage, bandwidth: float, seed: int) -> Iterator[Applications]:
    """A guest with an agent, a slow volume, and nothing that uses it yet but the files of the applications."""
    plan = Plan("demo", (Setup.ADAPTIVE,), scale=TIME, bandwidth=bandwidth, seed=seed)
    with started(image, plan, Scaled(VOLUMES, TIME, bandwidth)) as found:
        program = resources.files("elastio_testbed.guest").joinpath("beside.py").read_bytes()
        found.guest.vm.agent.write_file(f"{PROGRAMS}/beside.py", program)
        found.prepare()
        yield found


@contextmanager
def started(image: GuestImage, plan: Plan, scaled: Scaled) -> Iterator[Applications]:
    """The same without these files."""
    options = {"sample_interval_s": 1.0, "memory_mib": SMALL_MIB}
    with running_guest(plan, Setup.ADAPTIVE, image, scaled, **options) as (guest, endpoint):
        yield Applications(guest, endpoint)
