"""What `elastio metrics` prints beside a simulated machine, with a real ledger, every half a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder
from elastio.agent.request_handler import RequestHandler
from elastio.metrics.document import Known, document
from elastio_cli.metrics import bills_of
from elastio_sim.records import IN_MEMORY
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import BURST, KERNEL, machine

from .promtool import STEP_S


class Recorded:
    """A simulated machine, and the expositions so far."""

    def __init__(self, path: Path, load: tuple[Segment, ...] = BURST, faults: str = "nothing", **policy: Any) -> None:
        self.ledger = Ledger(path)
        recorder = CostRecorder(self.ledger, KERNEL.backing_uuid)
        self.sim: Simulation = machine(load, faults, recorder=recorder, **policy)
        self._started_at = self.sim.world.clock.now()
        self.wall = self.sim.world.clock.wall()
        self.texts: list[str] = []

    def run(self, steps: int) -> None:
        """Run for so many times STEP_S, and print after each."""
        for _ in range(steps):
            self.sim.run_for(STEP_S)
            self.texts.append(self.text())

    def text(self) -> str:
        """What the command prints now."""
        agent, wall = self.sim.agent, self.sim.world.clock.wall()
        seen = None if agent is None else RequestHandler(agent, IN_MEMORY, self._started_at).status()
        bills = bills_of(self.ledger, KERNEL.backing_uuid, wall, self.sim.policy.caps)
        return document([Known(KERNEL.backing_uuid, seen, bills)], wall=wall, version="0")
