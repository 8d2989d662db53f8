"""`elastio profile`: the whole answer for runs whose account is known, on a simulated machine with its own clock."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from elastio.control.exit_codes import Exit
from elastio.errors import HostError
from elastio.units import MB, SECTOR
from elastio_cli.app import App
from elastio_cli.main import main
from tests.unit.elastio.strategy.wait_runs import Stretch

Golden = Callable[[str, str], None]
SHELL, WORKER = 10, 11
GROUP = "system.slice/db.service"


@dataclass
class Machine:
    """Disks vda and vdb, and a shell whose child does what `run` says; it is also the command that was started."""

    root: Path
    run: Sequence[Stretch]
    exit_code: int = 0
    delays: bool = False
    gone_at: float = math.inf
    is_closed: bool = False  # /proc/PID/task/TID/syscall is for another user
    slow_s: float = 0.0  # how much later than it was to end each wait ends
    limit_mb_s: float = 0.0  # of the worker's cgroup
    pid: int = SHELL
    at: float = 1000.0
    started: list[Sequence[str]] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begin = self.at
        for name in ("vda", "vdb"):
            for folder in ("block", "class/block"):
                self._write(f"sys/{folder}/{name}/size", "2097152")
            self._write(f"sys/block/{name}/dev", f"254:{16 * (name == 'vdb')}")
        self._write("sys/class/block/vdc/size", "2097152")  # it has no counters any more
        number = self.root.stat().st_dev
        link = self.root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
        link.parent.mkdir(parents=True)
        link.symlink_to("../../block/vda")
        self._write("proc/sys/kernel/task_delayacct", str(int(self.delays)))
        self._write(f"proc/{SHELL}/task/{SHELL}/children", f"{WORKER}")
        self._write(f"sys/fs/cgroup/{GROUP}/cgroup.procs", f"{SHELL}\n{WORKER}")
        self._write(f"proc/{SHELL}/cgroup", "0::/job.scope")
        if self.limit_mb_s:
            self._write("sys/fs/cgroup/job.scope/io.max", f"254:0 rbps=max wbps={int(self.limit_mb_s * MB)}")
        self._show()

    # the clock, and the command

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return 1_790_000_000.0 + self.at

    def start(self, argv: Sequence[str]) -> Self:
        if argv[0] == "nope":
            raise HostError("nope is not installed", code="program.missing")
        self.started.append(argv)
        return self

    def wait(self, seconds: float) -> bool:
        ends = self.begin + sum(stretch.seconds for stretch in self.run)
        self.sleep(min(seconds + self.slow_s, max(0.0, ends - self.at)))
        return self.at >= ends - 1e-9

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self._show()

    def end(self) -> None:
        self.run = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It has ended."""

    # what the kernel shows

    def _show(self) -> None:
        left, now = self.at - self.begin, Stretch(0.0)
        moved = [0.0, 0.0]
        requests = waited = 0.0
        ran = [0.0] * 8
        for stretch in self.run:
            part = min(stretch.seconds, max(0.0, left))
            now = stretch if left >= 0 else now
            left -= stretch.seconds
            moved = [moved[0] + part * stretch.mb_s * MB, moved[1] + part * stretch.other_mb_s * MB]
            requests += part * stretch.mb_s * MB / stretch.request_bytes
            ran = [each + part * (number < stretch.running) for number, each in enumerate(ran)]
            waited += part * stretch.delayed
        self._task(SHELL, SHELL, "S", 0.0, 0.0)
        for number in range(max(1, *(each.running + each.waiting for each in self.run or [now]))):
            state = "R" if number < now.running else "D" if number < now.running + now.waiting else "S" * (not number)
            self._task(WORKER, WORKER + number, state, ran[number], waited, 426 if now.pending else 230)
        for pid, written in ((SHELL, 0.0), (WORKER, moved[0])):
            self._write(f"proc/{pid}/io", f"read_bytes: 0\nwrite_bytes: {int(written)}")
        self._disks(moved, requests)
        self._write("proc/pressure/io", f"some avg10=0.00 total={int(0.5e6 * (self.at - self.begin))}")
        if self.at - self.begin > self.gone_at:
            (self.root / f"sys/fs/cgroup/{GROUP}/cgroup.procs").unlink(missing_ok=True)

    def _task(self, pid: int, tid: int, state: str, ran_s: float, delayed_s: float, syscall: int = 61) -> None:
        folder, rest = f"proc/{pid}/task/{tid}", ["0"] * 49
        rest[38] = str(round(delayed_s * os.sysconf("SC_CLK_TCK")))
        name = "sh" if pid == SHELL else "worker"
        self._write(f"{folder}/stat", f"{tid} ({name}) {state or 'Z'} {' '.join(rest)}")
        if not self.is_closed:
            self._write(f"{folder}/syscall", f"{syscall} 0x1")
        self._write(f"{folder}/schedstat", f"{int(ran_s * 1e9) + 1} 0 1")

    def _disks(self, moved: Sequence[float], requests: float) -> None:
        lines = []
        for name, done, count in (("vda", moved[0], requests), ("vdb", moved[1], moved[1])):
            busy_ms = int(done / MB * 10)
            lines.append(f"254 0 {name} 0 0 0 0 {int(count)} 0 {int(done / SECTOR)} 0 0 {busy_ms} 0 0 0 0 0 0")
        self._write("proc/diskstats", "\n".join(lines))

    def _write(self, name: str, text: str) -> None:
        if self.shown.get(name) == text:
            return
        path = self.root / name
        if name not in self.shown:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        self.shown[name] = text

    def profile(self, *args: str) -> Result:
        app = App(root=self.root, clock=self, sleep=self.sleep, start=self.start)
        return CliRunner().invoke(main, ["profile", *args], obj=app, catch_exceptions=False)

    def document(self, *args: str) -> dict[str, Any]:
        result = self.profile("--json", *args)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found


def staged(mb_s: float, times: int = 6) -> tuple[Stretch, ...]:
    """It computes for 2 s, then writes 30 MB and waits for them."""
    return (Stretch(2.0, running=1), Stretch(30 / mb_s, waiting=1, mb_s=mb_s)) * times


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.chdir(root)

    def make(run: Iterable[Stretch], **settings: Any) -> Machine:
        return Machine(root, tuple(run), **settings)

    return make


Make = Callable[..., Machine]


def test_the_whole_answer_for_a_staged_job(machine: Make, golden: Golden) -> None:
    result = machine(staged(8.0)).profile("--bandwidth", "8", "--processes", "--", "job", "--input", "a b")
    assert result.exit_code == 0, result.output
    golden("profile.txt", result.stdout)


def test_the_whole_answer_for_several_tasks_without_a_known_limit(machine: Make, golden: Golden) -> None:
    run = (Stretch(2.0, running=2, waiting=1, mb_s=30), Stretch(2.0, running=1), Stretch(1.0))
    result = machine(run, exit_code=3).profile("--", "make", "-j3")
    assert result.exit_code == Exit.FAILED
    golden("profile_tasks.txt", result.stdout)


def test_one_run_predicts_the_others(machine: Make) -> None:
    found = machine(staged(8.0)).document("--bandwidth", "8", "--stop-gain", "0.05", "--", "job")
    assert found["measured_mb_s"] == pytest.approx(8, rel=0.03)
    for row in found["curve"]:
        assert row["time_s"] == pytest.approx(sum(s.seconds for s in staged(row["mb_s"])), rel=0.05)
    assert found["inflection_mb_s"]["likely"] == pytest.approx(180 * 0.9 / (0.1 * 12), rel=0.1)
    assert found["next_cache"]["why"] == "farthest"


@pytest.mark.parametrize(
    ("stretch", "mostly"),
    [
        (Stretch(5, running=1), "computing"),
        (Stretch(5, waiting=1, mb_s=30), "bandwidth"),
        (Stretch(5, waiting=1, mb_s=30, request_bytes=4096), "latency"),
        (Stretch(5, waiting=1, other_mb_s=30), "elsewhere"),
        (Stretch(5), "elsewhere"),
    ],
    ids=["computes", "large requests", "small requests", "another disk", "sleeps"],
)
def test_each_kind_of_program_is_told(stretch: Stretch, mostly: str, machine: Make) -> None:
    found = machine([stretch]).document("--", "program")
    assert found["mostly"] == mostly
    assert found["account"][f"{mostly}_s"] == pytest.approx(5, abs=0.1)
    assert found["of"] == "program"


def test_the_limit_that_is_given_decides_instead_of_the_size_of_requests(machine: Make) -> None:
    run = [Stretch(5, waiting=1, mb_s=30)]
    assert machine(run).document("--bandwidth", "100", "--", "x")["mostly"] == "latency"


def test_another_disk_can_be_watched(machine: Make) -> None:
    found = machine([Stretch(5, waiting=1, other_mb_s=30)]).document("--device", "/dev/vdb", "--", "x")
    assert (found["device"], found["account"]["elsewhere_s"]) == ("vdb", pytest.approx(0, abs=0.1))


def test_nothing_above_what_can_be_used_is_advised(machine: Make) -> None:
    found = machine(staged(8.0)).document("--bandwidth", "8", "--most", "20", "--", "job")
    assert found["next_cache"]["mb_s"] == 20
    assert found["next_cache"]["why"] == "demand"


def test_a_program_on_io_uring_waits_for_bandwidth(machine: Make) -> None:
    run = [Stretch(5, pending=1, mb_s=30)]
    found = machine(run).document("--bandwidth", "30", "--", "x")
    assert (found["mostly"], found["next_cache"]["why"]) == ("bandwidth", "farthest")
    assert found["account"]["bandwidth_s"] == pytest.approx(5, abs=0.1)


def test_what_cannot_be_told_is_unknown_and_nothing_is_advised(machine: Make) -> None:
    found = machine([Stretch(5, pending=1, mb_s=30)], is_closed=True).document("--bandwidth", "99", "--", "x")
    assert (found["mostly"], found["next_cache"]["why"], found["next_cache"]["mb_s"]) == ("unknown", "unknown", None)
    assert found["account"]["unknown_s"] == pytest.approx(5, abs=0.1)
    assert found["account"]["elsewhere_s"] == pytest.approx(0, abs=0.1)


def test_a_limit_of_a_cgroup_is_the_limit_and_it_is_said_whose(machine: Make, golden: Golden) -> None:
    golden("profile_limit.txt", machine(staged(8.0, 3), limit_mb_s=8.0).profile("--", "job").stdout)


def test_a_limit_of_a_cgroup_replaces_a_higher_one_that_is_given(machine: Make) -> None:
    found = machine(staged(8.0, 1), limit_mb_s=8.0).document("--bandwidth", "100", "--", "job")
    assert found["limits"] == [{"cgroup": "job.scope", "read_mb_s": None, "write_mb_s": 8.0}]
    assert found["account"]["bandwidth_s"] == pytest.approx(30 / 8, rel=0.05)


@pytest.mark.parametrize(("slow_s", "why"), [(0.01, "farthest"), (0.1, "readings_lost")])
def test_a_machine_that_is_too_busy_to_be_read_gets_no_answer(slow_s: float, why: str, machine: Make) -> None:
    found = machine([Stretch(9, waiting=1, mb_s=30)], slow_s=slow_s).document("--bandwidth", "30", "--", "x")
    assert found["next_cache"]["why"] == why
    assert (found["mostly"] is None) == (why == "readings_lost")
    assert (found["readings_lost"] > found["readings"]) == (why == "readings_lost")


def test_delay_accounting_is_used_where_it_is_on(machine: Make) -> None:
    run = [Stretch(1, running=1), Stretch(1, waiting=1, mb_s=30, delayed=1)] * 3
    assert machine(run, delays=True).document("--", "x")["by_delay_accounting"]


def test_processes_have_their_own_accounts(machine: Make) -> None:
    found = machine(staged(30.0, 2)).document("--processes", "--", "x")
    shell, worker = sorted(found["processes"], key=lambda each: each["pid"])
    assert (shell["command"], shell["elsewhere_s"]) == ("sh", pytest.approx(shell["seconds"]))
    assert worker["computing_s"] == pytest.approx(4, abs=0.2)
    assert worker["bandwidth_s"] == pytest.approx(2, abs=0.2)
    assert found["process_count"] == 2


# --- a cgroup ----------------------------------------------------------------------------------------------


def test_a_cgroup_is_read_for_as_long_as_is_said(machine: Make) -> None:
    made = machine([Stretch(100, waiting=1, mb_s=30)])
    found = made.document("--cgroup", GROUP, "--for", "5s")
    assert (found["of"], found["exit_code"], made.started) == (GROUP, None, [])
    assert found["seconds"] == pytest.approx(5)
    assert found["account"]["bandwidth_s"] == pytest.approx(5, abs=0.1)


def test_a_cgroup_that_vanishes_has_the_answer_for_what_was_seen(machine: Make) -> None:
    found = machine([Stretch(100, waiting=1, mb_s=30)], gone_at=3.0).document("--cgroup", GROUP, "--for", "5s")
    assert 2.9 < found["seconds"] < 3.1
    assert any("is gone" in note for note in found["notes"])


def test_a_kernel_without_pressure_is_no_fault(machine: Make) -> None:
    found = machine([Stretch(100, running=1)]).document("--cgroup", GROUP, "--for", "1s")
    assert found["pressure_s"] is None


# --- what is refused ---------------------------------------------------------------------------------------


def test_a_command_that_ends_at_once_is_told(machine: Make) -> None:
    made = machine([])
    result = made.profile("--", "true")
    assert (result.exit_code, result.stdout.count("\n")) == (Exit.OK, 1)
    assert made.document("--", "true")["next_cache"]["why"] == "nothing_seen"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([], Exit.USAGE),
        (["--cgroup", GROUP, "--", "x"], Exit.USAGE),
        (["--for", "5s", "--", "x"], Exit.USAGE),
        (["--stop-gain", "0.5", "--", "x"], Exit.USAGE),
        (["--stop-gain", "0", "--", "x"], Exit.USAGE),
        (["--bandwidth", "0", "--", "x"], Exit.USAGE),
        (["--bandwidth", "nan", "--", "x"], Exit.USAGE),
        (["--cgroup", "nope.slice"], Exit.FAILED),
        (["--device", "vdz", "--", "x"], Exit.FAILED),
        (["--device", "vdc", "--", "x"], Exit.FAILED),
        (["--png", "deep/p.png", "--", "x"], Exit.FAILED),
        (["--", "nope"], Exit.FAILED),
    ],
)
def test_what_cannot_be_profiled_is_refused_and_nothing_is_run(args: list[str], code: int, machine: Make) -> None:
    made = machine([Stretch(5, running=1)])
    result = made.profile(*args)
    assert (result.exit_code, result.stdout, made.started) == (code, "", [])
