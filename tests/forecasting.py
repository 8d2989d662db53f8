"""The agent with a forecaster on a ledger, as the daemon wires it."""

from __future__ import annotations

from typing import Any

from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder
from elastio.agent.adviser import LearnedForecaster, forecast_terms
from elastio.core.model import Forecast
from elastio.strategy.learned import ForecastTerms
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment

from .simulated import KERNEL, machine

WAITING_PER_HOUR = 1.0


def forecasting(ledger: Ledger, load: tuple[Segment, ...], **settings: Any) -> Simulation:
    """The agent under this load; `settings` as those of `machine`."""
    recorder = CostRecorder(ledger, KERNEL.backing_uuid)
    running: list[Simulation] = []

    class Wired:
        def forecast(self, now: float, wall: float) -> Forecast | None:
            return LearnedForecaster(recorder.past, self.terms).forecast(now, wall)

        def terms(self) -> ForecastTerms | None:
            agent = running[0].agent if running else None
            return None if agent is None else forecast_terms(agent, WAITING_PER_HOUR)

    sim = machine(load, recorder=recorder, forecaster=Wired(), **settings)
    running.append(sim)
    return sim
