"""`elastiod --sim`: a simulated machine answers every command of `elastio`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from elastio.control.client import ControlClient
from elastio.control.protocol import RefusedByAgentError
from elastio.core.state import Phase
from elastio.errors import ConfigError
from elastio_sim.daemon import SimDaemon, default_config
from elastio_sim.settings import default_socket, parse_settings

T = TypeVar("T")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[SimDaemon]:
    made = SimDaemon(default_config(), tmp_path / "sim.sock")
    yield made
    made.close()


def answer(daemon: SimDaemon, ask: Callable[[ControlClient], T]) -> T:
    """What the client gets while the daemon turns."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ask, ControlClient(daemon.server.path))
        while not future.done():
            daemon.turn(0.01, 0.05)
    return future.result()


def test_shows_its_status(daemon: SimDaemon) -> None:
    daemon.turn(0, 5)
    status = answer(daemon, lambda client: client.status())
    assert status.phase == "idle"
    assert status.recovered


def test_the_application_bursts_repeatedly(daemon: SimDaemon) -> None:
    phases = set()
    for _ in range(500):
        daemon.turn(0, 1)
        phases.add(daemon.simulation.phase)
    assert phases == set(Phase) - {Phase.FAULTED}
    assert len(daemon.simulation.world.provider.volumes) >= 2


def test_boosts_flushes_and_refuses_as_the_real_one_does(daemon: SimDaemon) -> None:
    daemon.turn(0, 5)
    answer(daemon, lambda c: c.ask("boost", size_bytes=2**31))
    boosted = daemon.simulation.phase
    answer(daemon, lambda c: c.ask("flush"))
    assert (boosted, daemon.simulation.phase) == (Phase.ATTACHING, Phase.DETACHING)
    with pytest.raises(RefusedByAgentError):
        answer(daemon, lambda c: c.ask("boost"))


def test_says_why(daemon: SimDaemon) -> None:
    daemon.turn(0, 5)
    decisions = answer(daemon, lambda c: c.ask("why", count=3))["decisions"]
    assert [(d["from"], d["to"]) for d in decisions] == [("idle", "idle")]


def test_answers_after_the_simulated_power_was_cut(tmp_path: Path) -> None:
    config = default_config()
    struck = replace(config, provider=replace(config.provider, settings={"faults": "@10=power_cut"}))
    daemon = SimDaemon(struck, tmp_path / "sim.sock")
    try:
        daemon.turn(0, 15)
        assert daemon.simulation.world.kernel.boots == 1
        assert answer(daemon, lambda c: c.status()).phase == "idle"
    finally:
        daemon.close()


def test_the_application_writes_as_much_as_is_set(tmp_path: Path) -> None:
    config = default_config()
    calm = replace(config, provider=replace(config.provider, settings={"burst_mb_s": 2}))
    daemon = SimDaemon(calm, tmp_path / "sim.sock")
    try:
        for _ in range(100):
            daemon.turn(0, 2)
        assert {point.phase for point in daemon.simulation.timeline} == {Phase.IDLE}
    finally:
        daemon.close()


@pytest.mark.parametrize("pace", [0, -1, 41, True, "fast"])
def test_a_pace_that_the_simulation_cannot_keep_is_refused(pace: object) -> None:
    with pytest.raises(ConfigError, match="pace"):
        parse_settings({"pace": pace})


def test_leaves_no_socket_behind(tmp_path: Path) -> None:
    daemon = SimDaemon(default_config(), tmp_path / "sim.sock")
    assert (tmp_path / "sim.sock").is_socket()
    daemon.close()
    assert not (tmp_path / "sim.sock").exists()


def test_needs_no_root_for_its_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_socket() == tmp_path / "elastio-sim.sock"
    assert default_config().agent.socket == tmp_path / "elastio-sim.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_socket() == Path("/tmp/elastio-sim.sock")
