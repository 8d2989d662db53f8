"""Stories in which the agent dies at a given point, and what must be true afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elastio.books import LedgerBooks
from elastio.ledger import Ledger
from elastio.model import RequestKind, VolumeSpec
from elastio.policy import Policy
from elastio.sim.kernel import KernelSettings
from elastio.sim.run import Simulation
from elastio.sim.workload import Stretch, Trace
from elastio.sim.world import SimWorld, WorldSettings
from elastio.state import Phase
from elastio.units import GIB, MIB

KERNEL = KernelSettings(backing_mb_s=20, block_bytes=4 * MIB)
POLICY = Policy(
    backing_bandwidth_mb_s=20,
    cache_bandwidth_mb_s=80,
    inactivity_delay_s=3,
    initial_size_bytes=GIB,
    backing_uuid=KERNEL.backing_uuid,
)
QUIET = Stretch(1e9, 0)
LIMIT_S = 900.0
DOWN_S = 20.0


class AgentKilled(BaseException):
    """Nothing in the agent may catch this, as nothing can catch SIGKILL."""


class Tripwire:
    """Counts the points that a run passes and dies at the one that is `armed`; it strikes once."""

    def __init__(self, armed: int | None = None) -> None:
        self.armed, self.passed = armed, list[str]()

    def __call__(self, point: str) -> None:
        self.passed.append(point)
        if self.armed == len(self.passed) - 1:
            self.armed = None
            raise AgentKilled(point)


@dataclass(frozen=True)
class Story:
    """A load, and what an operator does along the way: `(condition, request)` pairs in their order."""

    load: tuple[Stretch, ...]
    asks: tuple[tuple[Callable[[Simulation], bool], RequestKind], ...] = ()
    orphan: bool = False


def has_boosted(sim: Simulation) -> bool:
    return sim.phase is Phase.BOOSTING or sim.is_settled()


def can_boost(sim: Simulation) -> bool:
    return sim.phase is Phase.IDLE and sim.state.owned is not None


STORIES = {
    "boost": Story((Stretch(2, 0), Stretch(9, 60), QUIET)),
    "boost again": Story((Stretch(2, 0), Stretch(9, 60), Stretch(6, 0), Stretch(4, 30), QUIET)),
    "operator": Story(
        (Stretch(20, 2), QUIET),
        ((can_boost, RequestKind.BOOST), (has_boosted, RequestKind.FLUSH)),
    ),
    "orphan": Story((QUIET,), orphan=True),
}


class Play:
    """One run of a story, checked after every step."""

    def __init__(self, story: Story, tripwire: Tripwire, books: Path) -> None:
        self.story, self.asks = story, list(story.asks)
        self.world = SimWorld(WorldSettings(kernel=KERNEL, seed=3), Trace(story.load, block_bytes=KERNEL.block_bytes))
        if story.orphan:
            self.world.provider.create("forgotten", VolumeSpec(GIB, 80), {})
            self.world.advance(5.0)  # a new volume is not listed at once
        self.ledger = Ledger(books)
        self.sim = Simulation(self.world, POLICY, books=LedgerBooks(self.ledger, KERNEL.backing_uuid), point=tripwire)
        self.sim.on_step = self.check
        self.most_volumes = self.deaths = 0

    def __enter__(self) -> Play:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()

    def check(self) -> None:
        assert not self.world.lost(), self.sim.standing()
        self.most_volumes = max(self.most_volumes, self.world.volumes_left())
        assert self.most_volumes <= 1, self.sim.standing()
        assert self.sim.phase is not Phase.FAULTED, self.sim.standing()

    def run(self, die: Callable[[], None]) -> None:
        """To the end of the story; `die` is called when the tripwire is hit."""
        while True:
            try:
                self._run()
            except AgentKilled:
                self.deaths += 1
                die()
            else:
                return

    def _run(self) -> None:
        while self.asks:
            condition, kind = self.asks[0]
            self.sim.run_until(partial(condition, self.sim), LIMIT_S)
            self.asks.pop(0)  # an operator whose agent died while it was asked does not ask again
            self.sim.ask(kind)
        ends_at = sum(s.seconds for s in self.story.load if s is not QUIET)
        self.sim.run_until(lambda: self.world.clock.elapsed() > ends_at, LIMIT_S)
        self.sim.run_until_settled(LIMIT_S)

    def check_at_rest(self, agbs_tolerance: float) -> None:
        """Nothing is left, nothing is lost, and the bill is known."""
        assert self.world.volumes_left() == 0
        assert not self.world.lost(power_cut=True), "something was released before it was durable"
        assert self.world.kernel.bcache.sb_set is None
        claimed, real = self.ledger_agbs(), self.world.provider.bill_agbs()
        assert real - 1 <= claimed <= real + agbs_tolerance, f"the ledger says {claimed:.0f} AGBs of {real:.0f}"

    def kill(self) -> None:
        self.sim.start_agent()

    def kill_and_wait(self) -> None:
        """What was under way goes on while nobody looks."""
        self.sim.kill_agent()
        self.world.advance(DOWN_S)
        self.sim.start_agent()

    def power_cut(self) -> None:
        self.sim.power_cut()

    def ledger_agbs(self) -> float:
        wall = self.world.clock.wall()
        return sum(c.agbs(0.0, wall) for c in self.ledger.cycles(0.0, wall))

    def decisions(self) -> list[str]:
        records = (json.loads(line) for line in self.sim.lines)
        return [f"{r['now']:.1f} {r['from']} -> {r['to']}: {r['reason']}" for r in records if r["kind"] == "decision"]
