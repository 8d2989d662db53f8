"""`elastiod --sim`: the real loop, requests and control socket on a simulated machine that bursts by itself.

Simulated time follows real time, or is `pace` times as fast, so that every command of `elastio` can be tried without a
cloud, a kernel module or root. It creates no file but the control socket.
"""

from __future__ import annotations

import logging
import selectors
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

from elastio.agent.adviser import HindsightAdviser
from elastio.agent.market import market
from elastio.agent.narration import EventLog
from elastio.agent.request_handler import RequestHandler, decisions_in
from elastio.config.schema import Config, load, parse
from elastio.control.protocol import DEFAULT_DECISIONS, Message, Reply, accepted
from elastio.control.server import ControlServer
from elastio.core.policy import Model, Policy
from elastio_sim.kernel import KernelSettings
from elastio_sim.run import Simulation
from elastio_sim.settings import default_socket, parse_settings
from elastio_sim.workload import Segment, Trace, Workload
from elastio_sim.world import open_world

# One burst and the quiet after it, repeated.
QUIET_S, BURST_S, REST_S = 20, 40, 120
QUIET_MB_S = 1
TURN_S = 0.1
# After a suspend the simulation catches up in steps, so that the socket keeps answering.
MOST_AT_ONCE_S = 5.0

_log = logging.getLogger(__name__)


class SimDaemon:
    """One simulated machine and its control socket. Raises HostError or LockedError as `ControlServer` does."""

    def __init__(self, config: Config, socket: Path) -> None:
        uuid = config.device.backing_uuid
        settings = config.provider.settings if config.provider.name == "sim" else {}
        world = open_world({"backing_mb_s": config.device.bandwidth_mb_s, **settings}, uuid)
        self.settings = parse_settings(settings)
        world.workload = bursts(self.settings.burst_mb_s)
        self.simulation = Simulation(
            world,
            policy_of(config, world.kernel.settings.backing_bytes),
            adviser=HindsightAdviser(),
            sample_interval_s=config.agent.sample_interval_s,
            seed=world.settings.seed,
            reporter=EventLog(uuid),
        )
        self._selector = selectors.DefaultSelector()
        self.server = ControlServer(socket, config.agent.socket_group or None, self._handle)
        self.server.register(self._selector)
        self._requests = self._open_requests()

    def turn(self, wait_s: float, ahead_s: float) -> None:
        """Serve requests for at most `wait_s`, then let `ahead_s` simulated seconds pass."""
        for key, mask in self._selector.select(wait_s):
            self.server.on_ready(key, mask)
        self.simulation.run_for(ahead_s)
        if self.simulation.world.workload.done:
            self.simulation.world.workload = bursts(self.settings.burst_mb_s)
        if self._starts != self.simulation.starts:  # the simulated power was cut
            self._requests = self._open_requests()
        self.server.sweep()

    def close(self) -> None:
        """Remove the socket."""
        self.server.close()
        self._selector.close()

    def _open_requests(self) -> RequestHandler:
        agent = self.simulation.agent
        if agent is None:
            raise RuntimeError("no agent runs")
        self._starts = self.simulation.starts
        started_at = self.simulation.world.clock.now()
        return RequestHandler(agent, self.simulation.journal.path, started_at, lambda: self.server.asked_by)

    def _handle(self, message: Message, reply: Reply) -> None:
        if message["command"] == "why":
            count = message.get("count", DEFAULT_DECISIONS)
            reply(accepted(decisions=decisions_in(self.simulation.journal.records(), count)))
        else:
            self._requests.handle(message, reply)


def policy_of(config: Config, backing_bytes: int) -> Policy:
    """The settings, with the market where money decides. Raises ConfigError if a price is not known."""
    policy = config.policy()
    if policy.model is not Model.MONEY:
        return policy
    return replace(policy, market=market(config, "", backing_bytes, None))


def bursts(mb_s: float) -> Workload:
    """The application of the simulated machine: a burst of this many MB/s, and the quiet before and after it."""
    return Trace((Segment(QUIET_S, QUIET_MB_S), Segment(BURST_S, mb_s), Segment(REST_S, QUIET_MB_S)))


def default_config() -> Config:
    """The configuration of `elastiod --sim` without a file."""
    return parse(
        {
            "device": {"backing_uuid": KernelSettings().backing_uuid, "bandwidth_mb_s": 33.0},
            "cache": {"bandwidth_mb_s": 128.0, "initial_size_gib": 4.0},
            "policy": {"inactivity_delay_s": 15.0},
            "agent": {"socket": str(default_socket()), "socket_group": ""},
            "provider": {"name": "sim"},
        }
    )


def run_simulated(config_path: Path | None) -> None:
    """Run until SIGTERM or SIGINT. Raises ConfigError for an invalid configuration."""
    config = default_config() if config_path is None else load(config_path)
    daemon = SimDaemon(config, config.agent.socket)
    stop: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        stop.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    asked = "--sim" if config.agent.socket == default_socket() else f"--socket {config.agent.socket}"
    _log.info("a simulated machine; ask it with: elastio %s status", asked)
    try:
        _follow_real_time(daemon, stop)
    finally:
        daemon.close()


def _follow_real_time(daemon: SimDaemon, stop: list[int]) -> None:
    clock, pace = daemon.simulation.world.clock, daemon.settings.pace
    began, at_begin = time.monotonic(), clock.elapsed()
    while not stop:
        behind = (time.monotonic() - began) * pace - (clock.elapsed() - at_begin)
        daemon.turn(TURN_S, max(0.0, min(behind, MOST_AT_ONCE_S)))
