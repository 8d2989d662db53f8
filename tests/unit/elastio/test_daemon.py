"""The door to the cloud, as the daemon opens it in a lane."""

from __future__ import annotations

from multiprocessing.connection import wait

import pytest

from elastio.actions import Action, ListVolumes, Outcome, Verdict
from elastio.config import Config, parse
from elastio.daemon import CloudDoor
from elastio.errors import ConfigError
from elastio.executor import Executor, lost
from elastio.lane import ForkLane
from elastio.sim.kernel import KernelSettings
from elastio.sim.world import SimWorld

LONG_S = 30.0


def config(provider: str) -> Config:
    return parse(
        {
            "device": {"backing_uuid": KernelSettings().backing_uuid, "bandwidth_mb_s": 33.0},
            "cache": {"bandwidth_mb_s": 128.0, "initial_size_gib": 4.0},
            "provider": {"name": provider},
        }
    )


def test_a_door_opens_once() -> None:
    door = CloudDoor(config("sim"))
    door.warm_up()
    assert door() is door()


def test_a_door_that_cannot_be_opened_says_so() -> None:
    with pytest.raises(ConfigError, match="'nowhere' and no such provider is installed"):
        CloudDoor(config("nowhere")).warm_up()


def test_a_provider_that_is_not_installed_is_known_before_the_cloud_is_asked() -> None:
    door = CloudDoor(config("nowhere"))
    executor = Executor(SimWorld().host, door)
    lane: ForkLane[Action, Outcome] = ForkLane("cloud", executor.run, lost, door.warm_up)
    lane.start()
    try:
        for asked in (False, True):
            if asked:
                lane.submit(ListVolumes(), LONG_S)
            awaited = lane.awaited()
            assert awaited is not None
            assert wait([awaited], LONG_S)
            outcome = lane.poll()
            assert "no such provider is installed" in lane.trouble
            assert (outcome is not None) == asked
        assert outcome is not None
        assert (outcome.verdict, outcome.error) == (Verdict.RETRY, lane.trouble)
    finally:
        lane.close(0.0)
