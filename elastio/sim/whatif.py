"""Replays a trace under several policies, and on volumes that are slow, fast, or modified for the peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from elastio.config.schema import parse
from elastio.core.policy import Caps, Policy
from elastio.errors import ConfigError
from elastio.sim.comparison import Alternative, judge
from elastio.sim.experiment import boosts_of
from elastio.sim.kernel import KernelSettings
from elastio.sim.provider import FASTEST_MB_S, LARGEST_BYTES, SLOWEST_MB_S
from elastio.sim.records import MemoryRecorder
from elastio.sim.replay import Demand, Replay
from elastio.sim.run import Simulation
from elastio.sim.traces import TraceError
from elastio.sim.world import SimWorld, WorldSettings
from elastio.units import GB, GIB, MB, agbs

# Policy keys that may be varied, and the section of the configuration that each belongs to.
KEYS: Mapping[str, str] = {
    "utilization_threshold": "policy",
    "release_threshold": "policy",
    "trigger_delay_s": "policy",
    "inactivity_delay_s": "policy",
    "cool_down_s": "policy",
    "headroom": "cache",
    "initial_size_gib": "cache",
    "min_size_gib": "cache",
    "bandwidth_mb_s": "cache",
    "drain_bandwidth_mb_s": "cache",
}
LARGEST_GIB = LARGEST_BYTES / GIB
# Limits of a replay. A day takes half a minute on every volume, 10 TB a minute. The agent keeps a month of samples.
MOST_S = 31 * 86400.0
MOST_MOVED_BYTES = 100e12


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a volume costs per hour: by size and by bandwidth. `minimum_s`: the shortest time billed."""

    currency: str = "USD"
    per_gb_hour: float = 0.00011
    per_mb_s_hour: float = 0.00006
    minimum_s: float = 60.0

    def cost(self, size_bytes: float, mb_s: float, seconds: float) -> float:
        return (self.per_gb_hour * size_bytes / GB + self.per_mb_s_hour * mb_s) * seconds / 3600


@dataclass(frozen=True, slots=True)
class Question:
    """What is compared. `modify_gap_s`: the least time between two modifications of a volume in the cloud.
    `with_timeline`: keep a row for each second, for pictures."""

    wanted: tuple[Demand, ...]
    backing_mb_s: float = 33.0
    cache_mb_s: float = 128.0
    size_bytes: int = 50 * GB
    initial_bytes: int = 10 * GIB
    inactivity_delay_s: float = 30.0
    policies: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {"adaptive": {}})
    tariff: Tariff = Tariff()
    modify_gap_s: float = 6 * 3600.0
    seed: int = 0
    with_timeline: bool = True

    @property
    def slow_s(self) -> float:
        """The time of the slow volume: of each segment its length, or the time of its bytes if that is longer."""
        return sum(max(d.seconds, d.moved_bytes / MB / self.backing_mb_s) for d in self.wanted)

    def policy(self, changes: Mapping[str, float], backing_uuid: str) -> Policy:
        """The settings of the agent with the changes of one policy.

        Raises ConfigError for a key or a value that a configuration may not have, and for a cache that is not sold.
        """
        document: dict[str, dict[str, object]] = {
            "device": {"backing_uuid": backing_uuid, "bandwidth_mb_s": self.backing_mb_s},
            "cache": {"bandwidth_mb_s": self.cache_mb_s, "initial_size_gib": self.initial_bytes / GIB},
            "policy": {"inactivity_delay_s": self.inactivity_delay_s},
            "provider": {"name": "sim"},
        }
        for key, value in changes.items():
            if key not in KEYS:
                raise ConfigError(f"{key} is not a setting of a policy; known are {', '.join(KEYS)}", code=key)
            document[KEYS[key]][key] = value
        first_gib = changes.get("initial_size_gib", self.initial_bytes / GIB)
        document["cache"]["max_size_gib"] = max(Caps().max_size_bytes / GIB, min(first_gib, LARGEST_GIB))
        return require_provisioned(replace(parse(document).policy(), tags_volumes=False, notice_poll_s=None))


def require_provisioned(policy: Policy) -> Policy:
    """The policy. Raises ConfigError if the simulated cloud does not sell such caches: no boost would ever begin."""
    mb_s = policy.bought_bandwidth_mb_s
    if not SLOWEST_MB_S <= mb_s <= FASTEST_MB_S:
        sold = f"{SLOWEST_MB_S:g} to {FASTEST_MB_S:g} MB/s"
        raise ConfigError(
            f"a cache of {mb_s:g} MB/s, to write and to flush together, is not sold; allowed: {sold}",
            code="cache.bandwidth_mb_s",
        )
    return policy


@dataclass(frozen=True, slots=True)
class Answer:
    """All alternatives, and whether the agent is worth it."""

    static: tuple[Alternative, ...]
    policies: tuple[Alternative, ...]
    verdict: str
    worth_it: bool


def answer(question: Question) -> Answer:
    """Raises TraceError for a trace that is too long, ConfigError for an invalid policy, TimeoutError if a run does not
    end."""
    _require_feasible(question)
    uuid = KernelSettings().backing_uuid
    agents = {name: question.policy(changes, uuid) for name, changes in question.policies.items()}
    slow, fast = (_static(name, question, mb_s) for name, mb_s in _statics(question))
    static = (slow.outcome, fast.outcome, _modified(question, fast))
    policies = tuple(_adaptive(name, question, policy) for name, policy in agents.items())
    found = judge(static, policies, question.tariff.currency)
    return Answer(static, policies, found.sentence, found.better is None)


def _require_feasible(question: Question) -> None:
    days, most = question.slow_s / 86400, MOST_S / 86400
    if not days <= most:
        slow = f"a volume of {question.backing_mb_s:g} MB/s"
        raise TraceError(
            f"the trace would take {days:.3g} days on {slow}: at most {most:g} days are replayed", code="duration"
        )
    moved, limit = sum(d.moved_bytes for d in question.wanted) / 1e12, MOST_MOVED_BYTES / 1e12
    if moved > limit:
        raise TraceError(f"the trace moves {moved:.3g} TB: at most {limit:g} TB are replayed", code="size")


def _statics(question: Question) -> tuple[tuple[str, float], tuple[str, float]]:
    return ("static-slow", question.backing_mb_s), ("static-fast", question.cache_mb_s)


def _world(question: Question, mb_s: float) -> SimWorld:
    """The trace on a volume of this bandwidth."""
    kernel = KernelSettings(backing_mb_s=mb_s, backing_bytes=question.size_bytes)
    return SimWorld(WorldSettings(kernel=kernel, seed=question.seed), Replay(question.wanted, question.size_bytes))


@dataclass(frozen=True, slots=True)
class _Static:
    outcome: Alternative
    busy_s: tuple[float, ...]  # seconds in which the load was above the threshold of the agent


def _static(name: str, question: Question, mb_s: float) -> _Static:
    world = _world(question, mb_s)
    load = world.workload
    busy, moved, limit = [], 0, _limit_s(question)
    threshold = Policy(question.backing_mb_s, question.cache_mb_s).utilization_threshold * question.backing_mb_s
    while not load.done:
        if world.clock.elapsed() >= limit:
            raise TimeoutError(f"{name} did not end within {limit:g} s")
        world.advance(1.0)
        total = world.kernel.traffic.adaptive.read + world.kernel.traffic.adaptive.written
        if (total - moved) / MB >= threshold:
            busy.append(world.clock.elapsed())
        moved = total
    seconds = load.stats.finished_s or 0.0
    cost = question.tariff.cost(question.size_bytes, mb_s, seconds)
    return _Static(Alternative(name, seconds, agbs(mb_s, question.size_bytes, seconds), cost), tuple(busy))


def _modified(question: Question, fast: _Static) -> Alternative:
    """One volume that is modified: fast for the peaks and slow between them, as often as the cloud allows.

    An optimistic bound: every modification is in time and in force at once.
    """
    total_s = fast.outcome.completion_s
    fast_s = sum(end - begin for begin, end in windows(fast.busy_s, question.modify_gap_s, total_s))
    slow_s = max(0.0, total_s - fast_s)
    spent = agbs(question.cache_mb_s, question.size_bytes, fast_s)
    spent += agbs(question.backing_mb_s, question.size_bytes, slow_s)
    tariff, size = question.tariff, question.size_bytes
    cost = tariff.cost(size, question.cache_mb_s, fast_s) + tariff.cost(size, question.backing_mb_s, slow_s)
    return Alternative("modify-volume", total_s, spent, cost)


def windows(busy_s: Sequence[float], gap_s: float, total_s: float) -> tuple[tuple[float, float], ...]:
    """When the volume has to be fast. It keeps each speed for at least `gap_s`."""
    if not busy_s:
        return ()
    begin, found = busy_s[0] - 1.0, []
    for at, after in pairwise((*busy_s, math.inf)):
        end = max(at, begin + gap_s)
        if after - end > gap_s:
            found.append((begin, min(end, total_s)))
            begin = after - 1.0
    return tuple(found)


def _adaptive(name: str, question: Question, policy: Policy) -> Alternative:
    world, recorder = _world(question, question.backing_mb_s), MemoryRecorder()
    simulation = Simulation(world, policy, recorder=recorder, seed=question.seed)
    if not question.with_timeline:
        simulation.on_step = simulation.timeline.clear  # a month of it would fill the memory
    simulation.run_until(lambda: world.workload.done, _limit_s(question))
    simulation.run_until_settled(_limit_s(question) + policy.inactivity_delay_s)
    seconds = world.workload.stats.finished_s or 0.0
    phases = boosts_of(recorder, world.clock)
    tariff = question.tariff
    cost = tariff.cost(question.size_bytes, question.backing_mb_s, seconds)
    mb_s = simulation.policy.bought_bandwidth_mb_s
    cost += sum(tariff.cost(p.size_bytes, mb_s, max(p.held_s, tariff.minimum_s)) for p in phases)
    spent = agbs(question.backing_mb_s, question.size_bytes, seconds) + world.provider.bill_agbs()
    return Alternative(name, seconds, spent, cost, phases, tuple(simulation.timeline))


def _limit_s(question: Question) -> float:
    """An hour, and four times what the slow volume would need."""
    return 3600 + 4 * question.slow_s
