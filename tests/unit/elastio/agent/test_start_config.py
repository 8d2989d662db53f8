"""An agent that has a cache to look after starts whatever is wrong beside its configuration, and buys nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.agent.journal import Journal
from elastio.agent.start_config import load_for_start, load_usable
from elastio.config.paths import JOURNAL
from elastio.core.model import RequestKind
from elastio.core.state import AgentState, Phase
from elastio.errors import ConfigError
from elastio_sim.kernel import KernelSettings
from elastio_sim.workload import Segment
from tests.simulated import assert_at_rest, bought, in_phase, intents, machine
from tests.values import cycle, present

UUID = KernelSettings().backing_uuid
OTHER = UUID.replace("5", "6")
NO_PRICES = '[policy]\nmodel = "money"\n[value]\nhour = 1\n'


def write(path: Path, uuid: str = UUID, caps: str = "", state_dir: str = "", rest: str = "") -> Path:
    directory = path.parent / "state/devices" / path.stem
    path.write_text(
        f'[device]\nbacking_uuid = "{uuid}"\nbandwidth_mb_s = 100\n[cache]\nbandwidth_mb_s = 400\n'
        f'[agent]\nstate_dir = "{state_dir or directory}"\n[caps]\n{caps}\n{rest}'
        '[provider]\nname = "openstack"\n[provider.openstack.types]\nfast = { bandwidth_mb_s = 500 }\n'
    )
    directory.mkdir(parents=True, exist_ok=True)
    return path


def copied(path: Path) -> None:
    write(path.with_name("data-before-upgrade.toml"))


def shared_elsewhere(path: Path) -> None:
    write(path, caps="shared = true")
    write(path.with_name("other.toml"), OTHER, "shared = true", "/srv/elastio")


def without_prices(path: Path) -> None:
    write(path, rest=NO_PRICES)


def open_boost(path: Path) -> None:
    journal = Journal(path.parent / "state/devices/data" / JOURNAL, "boot")
    journal.open()
    journal.decision(Phase.IDLE, AgentState(phase=Phase.BOOSTING, cycle=cycle()), "a load", now=1.0, wall=1.0)
    journal.close()


@pytest.mark.parametrize("spoil", [copied, shared_elsewhere, without_prices])
def test_what_is_wrong_beside_a_configuration_stops_no_agent_that_has_a_cycle(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    data = write(tmp_path / "data.toml")
    assert load_for_start(data) == load_usable(data)
    spoil(data)
    with pytest.raises(ConfigError) as refused:
        load_for_start(data)
    open_boost(data)
    config, policy = load_for_start(data)
    assert config.device.backing_uuid == UUID
    assert str(refused.value) in policy.buys_nothing
    with pytest.raises(ConfigError):
        load_usable(data)  # as a reload, and the check of a configuration


def test_an_agent_whose_shared_caps_are_unknown_starts_and_buys_nothing(tmp_path: Path) -> None:
    data = write(tmp_path / "data.toml", caps="shared = true\nmax_cost_per_day = 50")
    other = write(tmp_path / "other.toml", OTHER, "shared = true\nmax_cost_per_day = 1")
    assert load_for_start(data)[1].caps.max_cost_per_day == 1
    other.chmod(0o666)
    assert load_for_start(data)[1].buys_nothing
    with pytest.raises(ConfigError):
        load_usable(data)  # a reload keeps the lowest


def test_a_configuration_that_is_invalid_itself_stops_every_agent(tmp_path: Path) -> None:
    data = write(tmp_path / "data.toml", rest="typing_error = 1\n")
    open_boost(data)
    with pytest.raises(ConfigError):
        load_for_start(data)


def test_an_agent_that_buys_nothing_flushes_and_releases_what_it_has() -> None:
    sim = machine((Segment(2, 0), Segment(12, 60), Segment(60, 0), Segment(20, 60), Segment(1e9, 0)))
    in_phase(sim, Phase.BOOSTING)
    sim.policy = replace(sim.policy, buys_nothing="two files are for one device")
    sim.start_agent()
    in_phase(sim, Phase.IDLE, 60)
    answer = sim.ask(RequestKind.BOOST)
    assert (answer.accepted, answer.code, answer.text) == (False, "boost.obstacle", sim.policy.buys_nothing)
    sim.run_for(100)
    assert_at_rest(sim)
    assert len(bought(sim)) == 1
    agent = present(sim.agent)
    agent.policy = replace(sim.policy, buys_nothing="")
    assert sim.ask(RequestKind.BOOST).accepted


def test_a_purchase_that_nobody_has_confirmed_is_not_made_into_a_boost() -> None:
    sim = machine((Segment(2, 0), Segment(60, 60), Segment(1e9, 0)))
    in_phase(sim, Phase.ATTACHING)
    sim.policy = replace(sim.policy, buys_nothing="two files are for one device")
    sim.start_agent()
    sim.run_for(100)
    assert_at_rest(sim)
    assert intents(sim, "InstallCache") == 0
