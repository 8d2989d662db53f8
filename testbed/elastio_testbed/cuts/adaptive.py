"""Power cuts in every phase of the agent's cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from elastio.units import GIB
from elastio_testbed.console import Say
from elastio_testbed.cuts.cut_result import CutResult
from elastio_testbed.cuts.cutter import CutCopies, Cutter, read_back
from elastio_testbed.cuts.plan import Phase, PlannedCut, of_phase
from elastio_testbed.cuts.power import PowerStrip
from elastio_testbed.cuts.reader import ADAPTIVE, Reader
from elastio_testbed.faults.kinds import Trigger
from elastio_testbed.faults.lab import Lab
from elastio_testbed.hypervisor import GuestTimeout
from elastio_testbed.image import GuestImage

PHASE_S = 300.0
ATTACHED = Trigger("outcome", "InstallCache")
# The share of the cache that is dirty near the cutoff: 0.70 of the buckets, of which not all are full.
NEAR = 0.55
# In published GB: some 320 MB here, which one or two bursts fill up to the cutoff.
CACHE_GB = 5.0
# The backing volume is slower by this factor during the cuts, so that dirty data stays dirty for minutes.
SLOWER = 8


class Adaptive:
    """A guest and its agent on a power strip that is cut again and again."""

    def __init__(self, lab: Lab, cutter: Cutter, say: Say) -> None:
        self._lab, self._cutter, self._say = lab, cutter, say

    def cycle(self, cuts: Sequence[PlannedCut], name: str) -> list[CutCopies]:
        """One cycle of the agent, from idle to idle, with its cuts. Raises GuestError if a phase is not reached."""
        lab, guest = self._lab, self._lab.guest
        guest.check(["elastio", "resume"], timeout_s=90)
        self._cutter.start_writer(name)
        seen = lab.arm(ATTACHED, kill=False)
        lab.burst()
        if not lab.wait_for_trigger(seen, PHASE_S):
            raise GuestTimeout(f"no cache was attached within {PHASE_S:.0f} s; {guest.agent_log()}")
        taken = self._take(cuts, Phase.ATTACHED, name)
        guest.vm.set_limit(guest.serial, guest.cap_bytes_s // SLOWER)
        self._load_until(lambda status: status["phase"] == "boosting" and _dirty(status) > 0)
        taken += self._take(cuts, Phase.BOOSTING, name)
        if of_phase(cuts, Phase.CUTOFF):
            near = round(NEAR * lab.scaled.initial_cache_gib * GIB)
            self._load_until(lambda status: _dirty(status) > near)
            taken += self._take(cuts, Phase.CUTOFF, name)
        lab.stop("burst")
        if of_phase(cuts, Phase.FLUSHING):
            guest.wait_for(lambda status: status["phase"] == "flushing", PHASE_S, "phase flushing")
            taken += self._take(cuts, Phase.FLUSHING, name)
        guest.vm.set_limit(guest.serial, guest.cap_bytes_s)
        self._cutter.stop_writer()
        lab.wait_for_rest()
        taken += [self._take_released(cut, f"{name}-{cut.number}") for cut in of_phase(cuts, Phase.RELEASED)]
        guest.check(["elastio", "pause"], timeout_s=90)
        return taken

    def _take_released(self, cut: PlannedCut, name: str) -> CutCopies:
        """Cut once the cache is gone that held the last records; meanwhile no application flushes anything."""
        self._say(str(cut))
        self._lab.guest.check(["elastio", "boost", "--wait"], timeout_s=PHASE_S)
        self._cutter.start_writer(name)
        self._cutter.silence_writer()
        self._lab.guest.check(["elastio", "flush"], timeout_s=90)
        self._lab.wait_for_rest()
        taken = self._cutter.take_silent(cut, name)
        self._cutter.stop_writer()
        return taken

    def _take(self, cuts: Sequence[PlannedCut], phase: Phase, name: str) -> list[CutCopies]:
        wanted = of_phase(cuts, phase)
        for cut in wanted:
            self._say(str(cut))
        return [self._cutter.take(cut, name) for cut in wanted]

    def _load_until(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Keep writing until the condition holds for the agent's status."""

        def is_reached() -> bool:
            if not self._lab.burst_runs():
                self._lab.burst()
            return condition(self._lab.guest.status())

        self._lab.wait_until(is_reached, PHASE_S, "the wanted amount of dirty data")


def _dirty(status: dict[str, Any]) -> int:
    return int(status["backing"]["dirty_bytes"]) if status["backing"] else 0


def results(
    image: GuestImage, cycles: Sequence[Sequence[PlannedCut]], seed: int, filesystem: str, folder: Path, say: Say
) -> Iterator[CutResult]:
    """Yield the result of each cut, cycle by cycle. Raises HypervisorError."""
    with (
        PowerStrip() as strip,
        Reader(image, folder / "reader") as reader,
        Lab(image, folder / "lab", seed, power=strip, filesystem=filesystem, fixed_cache_gb=CACHE_GB) as lab,
    ):
        say("booting")
        lab.prepare()
        cutter = Cutter(lab.guest.vm, strip, lab.records, folder / "copies", seed)
        adaptive = Adaptive(lab, cutter, say)
        for number, cuts in enumerate(cycles, start=1):
            for taken in adaptive.cycle(cuts, f"cycle{number}"):
                yield read_back(reader, taken, ADAPTIVE, seed)
