"""What a trace would have cost and taken, with the agent and without it.

The agent is the real one on the simulated machine (`replayed`), or its model (`fluid`), which is as good for the bill
and takes seconds for a month. Volumes without the agent, and volumes with credits, are always modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from elastio.config.schema import parse
from elastio.core.policy import Policy
from elastio.errors import ConfigError
from elastio.strategy.credits import constant
from elastio.strategy.spending import Caps
from elastio.units import GB, GIB, MB, agbs
from elastio_adviser.comparison import MONTH_S, Alternative, BestWay, judge
from elastio_adviser.experiment import BoostResult, boosts_of
from elastio_adviser.fluid import is_sustained, serve
from elastio_adviser.modification import DAY_S, ChangeRule, fast_s
from elastio_adviser.rates import TraceError
from elastio_adviser.replay import Demand, Replay
from elastio_adviser.volume_types import VolumeType, volume_type
from elastio_sim.kernel import KernelSettings
from elastio_sim.provider import FASTEST_MB_S, LARGEST_BYTES, SLOWEST_MB_S
from elastio_sim.records import MemoryRecorder
from elastio_sim.run import Simulation
from elastio_sim.world import GRID_HZ, SimWorld, WorldSettings

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
class Question:
    """What is compared.

    `recorded_s`: the length of the recording, which recurs; None: as long as the slow volume takes. `volume`: the type
    of the volume that there is, `fast`: of caches and of a volume that is always fast, `cold`: types with credits to
    compare. `change_rule`: how often the cloud modifies a volume. `hour_value`: what an hour of waiting costs; None:
    not known. `replayed`: run the real agent, not its model. `with_timeline`: keep a row for each second, for pictures.
    """

    wanted: tuple[Demand, ...]
    recorded_s: float | None = None
    backing_mb_s: float = 33.0
    cache_mb_s: float = 128.0
    size_bytes: int = 50 * GB
    initial_bytes: int = 10 * GIB
    inactivity_delay_s: float = 30.0
    policies: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {"adaptive": {}})
    volume: VolumeType = field(default_factory=lambda: volume_type("gp3"))
    fast: VolumeType = field(default_factory=lambda: volume_type("gp3"))
    cold: tuple[VolumeType, ...] = ()
    change_rule: ChangeRule = field(default_factory=ChangeRule)
    hour_value: float | None = None
    replayed: bool = True
    seed: int = 0
    with_timeline: bool = True

    @property
    def slow_s(self) -> float:
        """The time of the slow volume: of each segment its length, or the time of its bytes if that is longer."""
        return self.time_s(self.backing_mb_s)

    def time_s(self, mb_s: float) -> float:
        """The time of a volume of constant speed."""
        return sum(max(d.seconds, d.moved_bytes / MB / mb_s) for d in self.wanted)

    @property
    def least_s(self) -> float:
        """The time on a volume for which nothing waits."""
        return sum(d.seconds for d in self.wanted)

    @property
    def period_s(self) -> float:
        """The time after which the load recurs."""
        return self.recorded_s or self.slow_s

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
    """All ways, which of them is best for which price of an hour of waiting, and whether that is the agent."""

    static: tuple[Alternative, ...]
    policies: tuple[Alternative, ...]
    cold: tuple[Alternative, ...]
    cold_policies: tuple[Alternative, ...]
    currency: str
    choices: tuple[BestWay, ...]
    verdict: str
    worth_it: bool

    @property
    def ways(self) -> tuple[Alternative, ...]:
        """From the simplest on."""
        return (*self.static, *self.cold, *self.policies, *self.cold_policies)

    @property
    def agents(self) -> frozenset[str]:
        """The names of the ways that use the agent."""
        return frozenset(way.name for way in (*self.policies, *self.cold_policies))


def answer(question: Question) -> Answer:
    """Raises TraceError for a trace that is too long, ConfigError for an invalid policy or for tariffs of different
    currencies, TimeoutError if a run does not end."""
    _require_feasible(question)
    currency, agents = require_valid(question)
    static = tuple(_static(question))
    run = _replayed if question.replayed else _modelled
    policies = tuple(run(name, question, policy) for name, policy in agents.items())
    cold = tuple(_cold(question, kind, None) for kind in question.cold)
    first = next(iter(question.policies))
    cold_policies = tuple(_cold(question, kind, first) for kind in question.cold)
    unjudged = Answer(static, policies, cold, cold_policies, currency, (), "", False)
    found = judge(unjudged.ways, unjudged.agents, currency, question.hour_value)
    return replace(unjudged, choices=found.choices, verdict=found.sentence, worth_it=found.worth_it)


def require_valid(question: Question) -> tuple[str, dict[str, Policy]]:
    """The currency, and the settings of each policy. Raises ConfigError as `answer` does; no trace is needed."""
    kinds = (question.volume, question.fast, *question.cold)
    other = next((kind for kind in kinds if kind.tariff.currency != question.volume.tariff.currency), None)
    if other is not None:
        raise ConfigError(
            f"the prices of {question.volume.name} are in {question.volume.tariff.currency} and those of {other.name} "
            f"in {other.tariff.currency}: give tariffs of one currency",
            code="tariff.currency",
        )
    uuid = KernelSettings().backing_uuid
    agents = {name: question.policy(changes, uuid) for name, changes in question.policies.items()}
    return question.volume.tariff.currency, agents


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


def _way(
    name: str,
    question: Question,
    completion_s: float,
    standing_hour: float,
    spent_agbs: float,
    caches: float = 0.0,
    phases: tuple[BoostResult, ...] = (),
) -> Alternative:
    """A way whose volume costs `standing_hour`, and whose caches cost `caches` in one course of the trace."""
    waits_s = max(0.0, completion_s - question.least_s)
    return Alternative(
        name,
        completion_s,
        spent_agbs,
        standing_hour * completion_s / 3600 + caches,
        standing_hour * MONTH_S / 3600 + caches * MONTH_S / question.period_s,
        waits_s / 60 * DAY_S / question.period_s,
        phases,
    )


def _static(question: Question) -> Iterator[Alternative]:
    """The volume as it is, one that is always fast, and one that is modified for the peaks where a cloud does that."""
    size = question.size_bytes
    for name, kind, mb_s in (
        ("static-slow", question.volume, question.backing_mb_s),
        ("static-fast", question.fast, question.cache_mb_s),
    ):
        seconds = question.time_s(mb_s)
        yield _way(name, question, seconds, kind.per_hour(size, mb_s), agbs(mb_s, size, seconds))
    if question.change_rule.changes > 0:
        yield _modified(question)


def _modified(question: Question) -> Alternative:
    size, total_s = question.size_bytes, question.time_s(question.cache_mb_s)
    period_s = max(total_s, question.period_s)
    share = fast_s(_busy(question), period_s, question.change_rule) / period_s
    slow, fast = question.volume, question.fast
    hour = share * fast.per_hour(size, question.cache_mb_s) + (1 - share) * slow.per_hour(size, question.backing_mb_s)
    spent = share * agbs(question.cache_mb_s, size, total_s) + (1 - share) * agbs(question.backing_mb_s, size, total_s)
    return _way("modify-volume", question, total_s, hour, spent)


def _busy(question: Question) -> list[tuple[float, float]]:
    """When, on the fast volume, the slow one would not suffice."""
    at, found = 0.0, list[tuple[float, float]]()
    for demand in question.wanted:
        seconds = max(demand.seconds, demand.moved_bytes / MB / question.cache_mb_s)
        if seconds > 0 and demand.moved_bytes / MB / seconds > question.backing_mb_s:
            begin = found.pop()[0] if found and found[-1][1] >= at else at
            found.append((begin, at + seconds))
        at += seconds
    return found


def _cold(question: Question, kind: VolumeType, agent: str | None) -> Alternative:
    """A volume with credits instead of the one that there is, alone or behind the first policy's caches.

    Its bucket begins full, or empty if the load spends more credits than it earns.
    """
    bucket = kind.bucket(question.size_bytes, question.backing_mb_s)
    policy = None
    if agent is not None:
        cold = replace(question, backing_mb_s=bucket.burst_mb_s)
        policy = cold.policy(question.policies[agent], KernelSettings().backing_uuid)
    full = is_sustained(question.wanted, bucket, question.period_s)
    served = serve(question.wanted, bucket, policy, full)
    size = max(question.size_bytes, kind.least_bytes)
    spent = agbs(bucket.burst_mb_s, size, served.completion_s) + sum(b.agbs for b in served.boosts)
    caches = _bill(question, served.boosts, policy.bought_bandwidth_mb_s) if policy else 0.0
    name = f"static-{kind.name}" if agent is None else f"{agent}-{kind.name}"
    hour = kind.per_hour(size, bucket.burst_mb_s)
    way = _way(name, question, served.completion_s, hour, spent, caches, served.boosts)
    return replace(way, least_credits=served.least_credits)


def _bill(question: Question, boosts: tuple[BoostResult, ...], mb_s: float) -> float:
    return sum(question.fast.cost(b.size_bytes, mb_s, b.held_s) for b in boosts)


def _modelled(name: str, question: Question, policy: Policy) -> Alternative:
    served = serve(question.wanted, constant(question.backing_mb_s), policy)
    return _agent(name, question, policy, served.completion_s, served.boosts, sum(b.agbs for b in served.boosts))


def _agent(
    name: str, question: Question, policy: Policy, seconds: float, boosts: tuple[BoostResult, ...], cache_agbs: float
) -> Alternative:
    hour = question.volume.per_hour(question.size_bytes, question.backing_mb_s)
    spent = agbs(question.backing_mb_s, question.size_bytes, seconds) + cache_agbs
    caches = _bill(question, boosts, policy.bought_bandwidth_mb_s)
    return _way(name, question, seconds, hour, spent, caches, boosts)


def _world(question: Question) -> SimWorld:
    """The trace on the slow volume."""
    kernel = KernelSettings(backing_mb_s=question.backing_mb_s, backing_bytes=question.size_bytes)
    return SimWorld(WorldSettings(kernel=kernel, seed=question.seed), Replay(question.wanted, question.size_bytes))


def _replayed(name: str, question: Question, policy: Policy) -> Alternative:
    world, recorder = _world(question), MemoryRecorder()
    simulation = Simulation(world, policy, recorder=recorder, seed=question.seed)
    if not question.with_timeline:
        simulation.on_step = simulation.timeline.clear  # a month of it would fill the memory
    simulation.run_until(lambda: world.workload.done, _limit_s(question))
    simulation.run_until_settled(_limit_s(question) + policy.inactivity_delay_s)
    # It shows at the end of a tick that the load has ended.
    seconds = max(question.least_s, (world.workload.stats.finished_s or 0.0) - 1 / GRID_HZ)
    way = _agent(name, question, policy, seconds, boosts_of(recorder, world.clock), world.provider.bill_agbs())
    return replace(way, timeline=tuple(simulation.timeline))


def _limit_s(question: Question) -> float:
    """An hour, and four times what the slow volume would need."""
    return 3600 + 4 * question.slow_s
