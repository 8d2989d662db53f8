"""Drive the agent through its phases while the checker reads and writes, and prove that the checker detects a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elastio_testbed.console import Say
from elastio_testbed.faults.checker import FIRST_BLOCKS, REGIONS, Checker, wait_for_reads
from elastio_testbed.faults.lab import Lab
from elastio_testbed.image import GuestImage
from elastio_testbed.scratch import scratch_folder

PHASE_S, READS, READS_S = 300.0, 1500, 240.0
RETURNED = 0.1  # utilization above what the checker causes at its slow speed
SLOWER, TRIES = 8, 3
# Every change of phase that a complete run has to contain.
TRANSITIONS = frozenset(
    {
        ("idle", "attaching"),
        ("attaching", "boosting"),
        ("boosting", "flushing"),
        ("flushing", "boosting"),
        ("flushing", "detaching"),
        ("detaching", "idle"),
    }
)


@dataclass(frozen=True, slots=True)
class Consistency:
    """What was found. `wrong` reads returned older data than a completed write, newer data, or another block."""

    reads: int
    writes: int
    wrong: int
    stale_at_rest: int
    fio_passes: int
    fio_failed: bool
    transitions: tuple[tuple[str, str], ...]
    boosts: int
    examples: tuple[dict[str, Any], ...]

    @property
    def is_consistent(self) -> bool:
        return not (self.wrong or self.stale_at_rest or self.fio_failed)

    @property
    def is_complete(self) -> bool:
        """Every transition took place, a second volume was attached, and fio has completed a pass."""
        return set(self.transitions) >= TRANSITIONS and self.boosts >= 2 and self.fio_passes > 0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "consistent": self.is_consistent, "complete": self.is_complete}


@contextmanager
def checked_guest(image: GuestImage, seed: int, adopted: str | None = None) -> Iterator[tuple[Lab, Checker]]:
    """A guest with its agent at rest and the checker running; `adopted` as in `Lab`. Raises HypervisorError."""
    with scratch_folder("elastio-consistency-") as name, Lab(image, Path(name), seed, adopted=adopted) as lab:
        lab.prepare()
        checker = Checker(lab, seed, (*REGIONS, FIRST_BLOCKS) if adopted else REGIONS)
        checker.start()
        yield lab, checker


def through_all_phases(lab: Lab, checker: Checker, say: Say) -> Consistency:
    """Boost, flush, boost again on the same volume, flush and detach under load, attach another. Raises GuestError."""
    guest = lab.guest
    say("boosting")
    checker.burst()
    checker.set_speed("full")
    _wait(lab, "boosting")
    wait_for_reads(checker, READS, READS_S)
    for _ in range(TRIES):
        if _reverse(lab, checker, say):
            break
    wait_for_reads(checker, READS, READS_S)
    say("flushing and detaching under load")
    _release(lab, checker)
    say("attaching another volume")
    guest.check(["elastio", "resume"], timeout_s=90)
    checker.burst()
    checker.set_speed("full")
    _wait(lab, "boosting")
    wait_for_reads(checker, READS, READS_S)
    _release(lab, checker)
    return _found(lab, checker.stop())


def _reverse(lab: Lab, checker: Checker, say: Say) -> bool:
    """Let the load return during a flush. Returns whether it did in time; a cache is attached in either case."""
    guest = lab.guest
    say("flushing, slowly")
    checker.burst()
    _wait(lab, "boosting")
    # At full speed the volume would have taken everything before the load returns.
    guest.vm.set_limit(guest.serial, guest.cap_bytes_s // SLOWER)
    checker.set_speed("slow")
    lab.wait_until(lambda: not lab.burst_runs(), PHASE_S, "the burst to end")
    guest.wait_for(lambda status: status["phase"] != "boosting", PHASE_S, "the end of boosting")
    say("boosting again")
    checker.burst()
    guest.wait_for(_has_load_or_rest, PHASE_S, "the load to return")
    guest.vm.set_limit(guest.serial, guest.cap_bytes_s)
    checker.set_speed("full")
    _wait(lab, "boosting")
    return ("flushing", "boosting") in _steps(lab)


def by_hand(lab: Lab, checker: Checker, mode: str, say: Say, *, over_dirty: bool = False) -> int:
    """Set the cache to `mode` while the agent is stopped, and return the number of wrong reads.

    The agent uses `none` on a clean cache only. `writearound`, and `none` on dirty data, return stale data: the checker
    has to detect that.
    """
    guest = lab.guest
    checker.burst()
    checker.set_speed("full")
    _wait(lab, "boosting")
    guest.check(["systemctl", "stop", "elastiod"], timeout_s=120)
    directory = f"/sys/block/{lab.device()}/bcache"
    lab.wait_until(lambda: not lab.burst_runs(), PHASE_S, "the burst to end")
    guest.check(["sh", "-c", f"echo {int(not over_dirty)} > {directory}/writeback_running"])
    if over_dirty:
        wait_for_reads(checker, READS, READS_S)
    else:
        checker.set_speed("slow")
        clean = ["grep", "-q", "clean", f"{directory}/state"]
        lab.wait_until(lambda: lab.succeeds(*clean), PHASE_S, "the cache to become clean")
    before = checker.counts()["wrong"]
    guest.check(["sh", "-c", f"echo {mode} > {directory}/cache_mode"])
    checker.set_speed("full")
    say(f"{mode} by hand{', on dirty data' if over_dirty else ''}")
    wait_for_reads(checker, 2 * READS, 2 * READS_S)
    wrong = checker.counts()["wrong"] - before
    checker.set_speed("slow")
    guest.check(["systemctl", "start", "elastiod"], timeout_s=120)
    guest.check(["elastio", "pause"], timeout_s=90)
    lab.wait_for_rest()
    guest.check(["elastio", "resume"], timeout_s=90)
    return wrong


def _has_load_or_rest(status: dict[str, Any]) -> bool:
    utilization: float = status["load"]["utilization"]
    return utilization > RETURNED or status["phase"] != "flushing"


def _wait(lab: Lab, phase: str) -> None:
    lab.guest.wait_for(lambda status: status["phase"] == phase, PHASE_S, f"phase {phase}")


def _release(lab: Lab, checker: Checker) -> None:
    """Pause the agent under the checker's full load, and reduce the load after some hundred reads.

    Detaching needs an instant without a request, which a full load may not leave.
    """
    lab.guest.check(["elastio", "pause"], timeout_s=90)
    wait_for_reads(checker, READS // 2, READS_S)
    checker.set_speed("slow")
    lab.wait_for_rest()


def _steps(lab: Lab) -> tuple[tuple[str, str], ...]:
    """The changes of phase so far, as (from, to)."""
    return tuple((row["from"], row["to"]) for row in lab.guest.decisions() if row["from"] != row["to"])


def _found(lab: Lab, last: dict[str, Any]) -> Consistency:
    steps = _steps(lab)
    return Consistency(
        reads=last["reads"],
        writes=last["writes"],
        wrong=last["wrong"],
        stale_at_rest=last["stale_at_rest"],
        fio_passes=last["fio_passes"],
        fio_failed=last["fio_failed"],
        transitions=tuple(sorted(set(steps))),
        boosts=sum(step == ("attaching", "boosting") for step in steps),
        examples=(*last["wrong_examples"], *last["examples"])[:20],
    )
