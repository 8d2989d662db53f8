"""The whole agent on a simulated machine: writes are held back in time for the disk of the second cache."""

from __future__ import annotations

import json

from elastio.core.actions import HELD_MB_S
from elastio.core.boosting import IN_FLIGHT_BYTES
from elastio.core.state import Phase
from elastio.units import MB
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import QUIET, assert_at_rest, in_phase, intents, machine
from tests.values import POLICY

TWO_BURSTS = (Segment(2, 0), Segment(15, 70), Segment(60, 0), Segment(40, 70), QUIET)
DRAIN_S = IN_FLIGHT_BYTES / (POLICY.backing_bandwidth_mb_s * MB)


def second_purchase(faults: str = "nothing") -> Simulation:
    sim = machine(TWO_BURSTS, faults)
    sim.run_for(60)
    in_phase(sim, Phase.ATTACHING)
    return sim


def actions(sim: Simulation) -> list[str]:
    """The intents so far, in their order; one that holds writes back as `hold`."""
    found = [r for r in map(json.loads, sim.lines) if r["kind"] == "intent"]
    held = {"mb_s": HELD_MB_S}
    return ["hold" if r["action"] == "LimitWrites" and r["with"] == held else r["action"] for r in found]


def test_writes_are_held_back_once_the_first_volume_is_being_attached_and_earlier_for_the_second() -> None:
    sim = second_purchase()
    first = actions(sim)
    assert first.index("AttachVolume") < first.index("hold") < first.index("InstallCache")
    in_phase(sim, Phase.BOOSTING)
    second = actions(sim)[::-1]
    assert second.index("InstallCache") < second.index("hold") < second.index("AttachVolume")
    assert sim.world.kernel.bcache.write_limit_mb_s is None
    sim.run_for(120)
    assert_at_rest(sim)
    assert "LimitWrites" not in actions(sim)


def test_writes_flow_again_at_the_volumes_pace_when_the_disk_is_late() -> None:
    sim = second_purchase("attach#2=stuck:20")
    bcache = sim.world.kernel.bcache
    sim.run_until(lambda: bcache.write_limit_mb_s is not None, 20)
    held_at = sim.world.clock.elapsed()
    sim.run_until(lambda: bcache.write_limit_mb_s != HELD_MB_S, 20)
    assert sim.world.clock.elapsed() - held_at <= 2 * DRAIN_S + 1
    assert (sim.phase, bcache.write_limit_mb_s) == (Phase.ATTACHING, POLICY.backing_bandwidth_mb_s)
    in_phase(sim, Phase.BOOSTING)
    assert bcache.write_limit_mb_s is None
    assert (actions(sim).count("hold"), actions(sim).count("InstallCache")) == (2, 2), "no attach was refused"
    sim.run_for(150)
    assert_at_rest(sim)


def test_nobody_is_held_back_by_an_agent_that_is_killed_meanwhile() -> None:
    sim = second_purchase()
    sim.run_until(lambda: sim.world.kernel.bcache.write_limit_mb_s is not None, 20)
    sim.start_agent()
    sim.run_for(120)
    assert_at_rest(sim)
    assert sim.world.kernel.bcache.write_limit_mb_s is None
    assert intents(sim, "DeleteVolume") == 2
