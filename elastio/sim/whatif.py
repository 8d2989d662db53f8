"""A trace under several policies, against volumes that are slow, fast, or modified for the peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from elastio.policy import Caps, Policy
from elastio.sim.experiment import IoPhase, phase_of
from elastio.sim.kernel import KernelSettings
from elastio.sim.records import MemoryBooks
from elastio.sim.replay import Demand, Replay
from elastio.sim.run import Moment, Simulation
from elastio.sim.traces import TraceError
from elastio.sim.world import SimWorld, WorldSettings
from elastio.units import GB, GIB, agbs

# Less than this counts as the same: delays of the cloud vary by as much.
SAME = 0.01
# Policy keys that may be varied, as the configuration names them, and what they are in `Policy`.
KEYS: Mapping[str, str] = {
    "utilization_threshold": "utilization_threshold",
    "release_threshold": "release_threshold",
    "hold_s": "hold_s",
    "inactivity_delay_s": "inactivity_delay_s",
    "cool_down_s": "cool_down_s",
    "headroom": "headroom",
    "initial_size_gib": "initial_size_bytes",
    "min_size_gib": "min_size_bytes",
    "bandwidth_mb_s": "cache_bandwidth_mb_s",
    "drain_bandwidth_mb_s": "drain_bandwidth_mb_s",
}
POSITIVE = {"utilization_threshold", "headroom", "initial_size_gib", "min_size_gib", "bandwidth_mb_s"}


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
    """What is compared. `modify_gap_s`: how long a cloud makes one wait between two changes of a volume."""

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

    def policy(self, changes: Mapping[str, float], backing_uuid: str) -> Policy:
        """The agent's settings with one policy's changes. Raises TraceError for a key or a value that is none."""
        base = Policy(
            backing_bandwidth_mb_s=self.backing_mb_s,
            cache_bandwidth_mb_s=self.cache_mb_s,
            drain_bandwidth_mb_s=self.backing_mb_s,
            inactivity_delay_s=self.inactivity_delay_s,
            initial_size_bytes=self.initial_bytes,
            backing_uuid=backing_uuid,
            caps=Caps(max_size_bytes=max(self.initial_bytes, Caps().max_size_bytes)),
        )
        values: dict[str, float] = {}
        for key, value in changes.items():
            if key not in KEYS:
                raise TraceError(f"{key} is no setting of a policy; known are {', '.join(KEYS)}")
            if value < 0 or (value == 0 and key in POSITIVE):
                raise TraceError(f"{key} is {value:g}; allowed: {'above 0' if key in POSITIVE else 'at least 0'}")
            values[KEYS[key]] = int(value * GIB) if key.endswith("_gib") else value
        threshold = values.get("utilization_threshold", base.utilization_threshold)
        values.setdefault("release_threshold", min(base.release_threshold, threshold))
        if values["release_threshold"] > threshold:
            raise TraceError(f"release_threshold is above utilization_threshold ({threshold:g}): no boost would end")
        least, most = values.get("min_size_bytes", base.min_size_bytes), base.caps.max_size_bytes
        if least > most:
            raise TraceError(f"min_size_gib is {least / GIB:g}; allowed: at most {most / GIB:g}")
        return replace(base, **values)  # type: ignore[arg-type]  # names and kinds are those of KEYS


@dataclass(frozen=True, slots=True)
class Outcome:
    """One way to serve the trace. `timeline` is kept for pictures."""

    name: str
    completion_s: float
    agbs: float
    cost: float
    phases: tuple[IoPhase, ...] = ()
    timeline: tuple[Moment, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """All outcomes, and whether the agent is worth it."""

    static: tuple[Outcome, ...]
    policies: tuple[Outcome, ...]
    verdict: str
    worth_it: bool


def answer(question: Question) -> Answer:
    """Raises TraceError for a policy that makes no sense, TimeoutError when a run does not end."""
    slow, fast = (_static(name, question, mb_s) for name, mb_s in _statics(question))
    static = (slow.outcome, fast.outcome, _modified(question, fast))
    policies = tuple(_adaptive(name, question, changes) for name, changes in question.policies.items())
    verdict, worth_it = judge(static, policies)
    return Answer(static, policies, verdict, worth_it)


def _statics(question: Question) -> tuple[tuple[str, float], tuple[str, float]]:
    return ("static-slow", question.backing_mb_s), ("static-fast", question.cache_mb_s)


@dataclass(frozen=True, slots=True)
class _Static:
    outcome: Outcome
    busy_s: tuple[float, ...]  # seconds in which the load was above the agent's threshold


def _static(name: str, question: Question, mb_s: float) -> _Static:
    kernel = KernelSettings(backing_mb_s=mb_s, backing_bytes=question.size_bytes)
    load = Replay(question.wanted, question.size_bytes)
    world = SimWorld(WorldSettings(kernel=kernel, seed=question.seed), load)
    busy, moved, limit = [], 0, _limit_s(question)
    threshold = Policy(question.backing_mb_s, question.cache_mb_s).utilization_threshold * question.backing_mb_s
    while not load.done:
        if world.clock.elapsed() >= limit:
            raise TimeoutError(f"{name} did not end within {limit:g} s")
        world.advance(1.0)
        total = world.kernel.traffic.adaptive.read + world.kernel.traffic.adaptive.written
        if (total - moved) / 1e6 >= threshold:
            busy.append(world.clock.elapsed())
        moved = total
    seconds = load.stats.finished_s or 0.0
    cost = question.tariff.cost(question.size_bytes, mb_s, seconds)
    return _Static(Outcome(name, seconds, agbs(mb_s, question.size_bytes, seconds), cost), tuple(busy))


def _modified(question: Question, fast: _Static) -> Outcome:
    """The volume made fast for the peaks and slow between them, as rarely as the cloud allows.

    An optimistic bound: the changes are taken as made in time and in force at once.
    """
    total_s = fast.outcome.completion_s
    fast_s = sum(end - begin for begin, end in windows(fast.busy_s, question.modify_gap_s, total_s))
    slow_s = max(0.0, total_s - fast_s)
    spent = agbs(question.cache_mb_s, question.size_bytes, fast_s)
    spent += agbs(question.backing_mb_s, question.size_bytes, slow_s)
    tariff, size = question.tariff, question.size_bytes
    cost = tariff.cost(size, question.cache_mb_s, fast_s) + tariff.cost(size, question.backing_mb_s, slow_s)
    return Outcome("modify-volume", total_s, spent, cost)


def windows(busy_s: Sequence[float], gap_s: float, total_s: float) -> tuple[tuple[float, float], ...]:
    """When the volume has to be fast: each stay, fast or slow, lasts at least `gap_s`."""
    if not busy_s:
        return ()
    begin, found = busy_s[0] - 1.0, []
    for at, after in pairwise((*busy_s, math.inf)):
        end = max(at, begin + gap_s)
        if after - end > gap_s:
            found.append((begin, min(end, total_s)))
            begin = after - 1.0
    return tuple(found)


def _adaptive(name: str, question: Question, changes: Mapping[str, float]) -> Outcome:
    kernel = KernelSettings(backing_mb_s=question.backing_mb_s, backing_bytes=question.size_bytes)
    load = Replay(question.wanted, question.size_bytes)
    world = SimWorld(WorldSettings(kernel=kernel, seed=question.seed), load)
    books = MemoryBooks()
    simulation = Simulation(world, question.policy(changes, kernel.backing_uuid), books=books, seed=question.seed)
    simulation.run_until(lambda: load.done, _limit_s(question))
    simulation.run_until_settled(_limit_s(question))
    seconds = load.stats.finished_s or 0.0
    offset = world.clock.wall() - world.clock.elapsed()
    phases = tuple(phase_of(c, offset, world.clock.wall()) for c in books.rows.values() if c.opened_wall is not None)
    tariff = question.tariff
    cost = tariff.cost(question.size_bytes, question.backing_mb_s, seconds)
    mb_s = simulation.policy.bought_bandwidth_mb_s
    cost += sum(tariff.cost(p.size_bytes, mb_s, max(p.held_s, tariff.minimum_s)) for p in phases)
    spent = agbs(question.backing_mb_s, question.size_bytes, seconds) + world.provider.bill_agbs()
    return Outcome(name, seconds, spent, cost, phases, tuple(simulation.timeline))


def _limit_s(question: Question) -> float:
    """An hour, and four times what the slow volume would need."""
    moved = sum(d.write_bytes + d.read_bytes for d in question.wanted)
    return 3600 + 4 * (sum(d.seconds for d in question.wanted) + moved / 1e6 / question.backing_mb_s)


def judge(static: Sequence[Outcome], policies: Sequence[Outcome]) -> tuple[str, bool]:
    """One sentence: is the best policy worth it, and if not, what is better.

    Time is bought with AGBs: what counts is how many a saved second costs, against the slow volume.
    """
    slow, fast, modified = static
    best = min(policies, key=lambda p: _per_second(p, slow))
    saved = 1 - best.completion_s / slow.completion_s
    if saved < SAME:
        return "The agent is not worth it: the slow volume is as fast, and nothing has to be bought.", False
    for other, advice in ((fast, "take a faster volume all day"), (modified, "modify the volume for the peaks")):
        if _per_second(other, slow) <= _per_second(best, slow):
            theirs, ours = _per_second(other, slow), _per_second(best, slow)
            rates = f"a second saved costs {theirs:.0f} AGBs that way and {ours:.0f} with the agent"
            return f"The agent is not worth it: {advice}; {rates}.", False
    dearer, cheaper = best.agbs / slow.agbs - 1, 1 - best.agbs / min(fast.agbs, modified.agbs)
    return (
        f"The agent is worth it ({best.name}): {saved:.0%} faster than the slow volume at {dearer:+.1%} AGBs, and "
        f"{cheaper:.0%} cheaper than the cheapest fast one."
    ), True


def _per_second(outcome: Outcome, slow: Outcome) -> float:
    """AGBs for each second saved against the slow volume; infinite where none is."""
    saved_s = slow.completion_s - outcome.completion_s
    return (outcome.agbs - slow.agbs) / saved_s if saved_s >= SAME * slow.completion_s else math.inf
