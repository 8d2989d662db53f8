"""What goes wrong, and when: a plan that follows from a seed and fits on one line.

A story is a list of words. `create#2=throttle` spoils the second call of `create`, `attach#1x5=hang` the first
five, `attach#1+=hang` all of them, `attach#1=late_success:8` carries a number (seconds). `@90=vanish` happens at a
time of the simulation, `@dirty=vanish` as soon as the cache is dirty, `@clean=vanish` as soon as an attached cache
is clean, `@limited=disk_full:600` as soon as the writes of applications are limited.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    """Ways to fail. What is lost with an answer has happened; what hangs has not."""

    REFUSE = "refuse"  # the cloud: wrong request; the host: a sysfs write failed
    THROTTLE = "throttle"
    QUOTA = "quota"
    EXPIRED = "expired"  # credentials
    BUSY = "busy"  # the host: device or resource busy
    HANG = "hang"  # nothing happens and no answer comes
    LOSE_REPLY = "lose_reply"  # it happens at once, the answer is an error that may pass
    LATE_SUCCESS = "late_success"  # no answer comes; it happens `seconds` later
    HALF = "half"  # the host: killed half way through
    WRONG_DEVICE = "wrong_device"  # a disk of another volume appears beside the right one
    WRONG_SIZE = "wrong_size"  # the disk that appears has another size
    STUCK = "stuck"  # attaching, detaching, creating or deleting takes `seconds` longer
    STUCK_BUSY = "stuck_busy"  # the guest does not let go for `seconds`
    VOLUME_ERROR = "volume_error"  # the volume ends in the state "error"
    UNSEEN = "unseen"  # the new volume does not show for `seconds`
    NO_SPACE = "no_space"  # the journal cannot be written
    VANISH = "vanish"  # surprise removal of the cache disk
    POWER_CUT = "power_cut"
    WALL_JUMP = "wall_jump"  # the time of day steps by `seconds`
    STOP = "stop"  # SIGSTOP: the agent stands still for `seconds`, the machine does not
    KILL = "kill"  # the OOM killer takes the agent, which is started again `seconds` later
    DISK_FULL = "disk_full"  # nothing can be written to the journal for `seconds`
    SWAP = "swap"  # bcache is stopped by hand, and for `seconds` an older copy of the backing disk is in its place
    SWAP_ALIKE = "swap_alike"  # the same, of a disk known to have a cache; the copy shows the serial of that disk
    SWAP_NAMELESS = "swap_nameless"  # likewise, and the copy shows no serial
    SWAP_BACK = "swap_back"  # the machine is off for that
    DETACH_BY_HAND = "detach_by_hand"  # somebody detaches the cache set in sysfs
    KILL_CHILD = "kill_child"  # the OOM killer takes the children of the workers: their jobs have no answer


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `calls` calls of `op`, from the call number `first` on; 0 calls means all later ones."""

    op: str
    kind: Kind
    first: int = 1
    calls: int = 1
    seconds: float = 10.0

    def strikes(self, count: int) -> bool:
        """True when the call number `count` is spoiled."""
        return count >= self.first and (self.calls == 0 or count < self.first + self.calls)

    def __str__(self) -> str:
        calls = {0: "+", 1: ""}.get(self.calls, f"x{self.calls}")
        return f"{self.op}#{self.first}{calls}={self.kind}:{self.seconds:g}"


@dataclass(frozen=True, slots=True)
class Accident:
    """Something that happens to the machine: `when` is a time in seconds, or one of STATES."""

    when: str
    kind: Kind
    seconds: float = 10.0

    def __str__(self) -> str:
        return f"@{self.when}={self.kind}:{self.seconds:g}"


CALL_KINDS = (Kind.REFUSE, Kind.THROTTLE, Kind.QUOTA, Kind.EXPIRED, Kind.HANG, Kind.LOSE_REPLY, Kind.LATE_SUCCESS)
HOST_KINDS = (Kind.REFUSE, Kind.BUSY, Kind.HANG, Kind.LOSE_REPLY, Kind.LATE_SUCCESS)
PROVIDER_KINDS: dict[str, tuple[Kind, ...]] = {
    "identify": (Kind.THROTTLE, Kind.EXPIRED, Kind.HANG),
    "quote": (Kind.REFUSE, Kind.THROTTLE, Kind.HANG),
    "create": (*CALL_KINDS, Kind.STUCK, Kind.VOLUME_ERROR, Kind.UNSEEN),
    "attach": (*CALL_KINDS, Kind.STUCK, Kind.WRONG_DEVICE, Kind.WRONG_SIZE, Kind.VOLUME_ERROR),
    "detach": (*CALL_KINDS, Kind.STUCK, Kind.STUCK_BUSY),
    "delete": (*CALL_KINDS, Kind.STUCK),
    "describe": (Kind.THROTTLE, Kind.EXPIRED, Kind.HANG),
    "list_owned": (Kind.THROTTLE, Kind.EXPIRED, Kind.HANG),
}
HOST_OP_KINDS: dict[str, tuple[Kind, ...]] = {
    "scan": (Kind.REFUSE, Kind.HANG),
    "tune_backing": HOST_KINDS,
    "format_cache": HOST_KINDS,
    "register_cache": HOST_KINDS,
    "attach_cache_set": HOST_KINDS,
    "enter_phase1": HOST_KINDS,
    "enter_phase2": HOST_KINDS,
    "bypass_cache": HOST_KINDS,
    "limit_writes": HOST_KINDS,
    "wake_writeback": HOST_KINDS,
    "set_flush": HOST_KINDS,
    "detach_cache_set": HOST_KINDS,
    "release_cache_disk": (*HOST_KINDS, Kind.HALF),
    "make_durable": HOST_KINDS,
}
AGENT_KINDS = {"journal": (Kind.NO_SPACE,)}
OP_KINDS = {**PROVIDER_KINDS, **HOST_OP_KINDS, **AGENT_KINDS}
# Random faults pass: what never ends proves only that nothing can be done.
RANDOM_CALLS = (1, 1, 1, 1, 2, 6)
AGENT_ACCIDENTS = (Kind.STOP, Kind.KILL, Kind.KILL_CHILD, Kind.DISK_FULL)
UNTOLD_SWAPS = (Kind.SWAP_ALIKE, Kind.SWAP_NAMELESS)
SWAPS = (Kind.SWAP, *UNTOLD_SWAPS)
BY_HAND = (*SWAPS, Kind.DETACH_BY_HAND)
ACCIDENT_KINDS = (Kind.VANISH, Kind.POWER_CUT, Kind.WALL_JUMP, *AGENT_ACCIDENTS, *BY_HAND)
STATES = ("dirty", "clean", "limited")
FULL_MOST_S = 900.0

_FAULT = re.compile(
    r"(?P<op>[a-z_0-9]+)#(?P<first>[1-9]\d*)(?P<calls>\+|x[1-9]\d*)?=(?P<kind>[a-z_]+)(:(?P<s>-?[\d.]+))?"
)
_ACCIDENT = re.compile(r"@(?P<when>dirty|clean|limited|[\d.]+)=(?P<kind>[a-z_]+)(:(?P<s>-?[\d.]+))?")


class FaultPlan:
    """Faults and accidents; counts the calls of each operation. Fresh plans start with all counts at zero."""

    def __init__(self, faults: Iterable[Fault] = (), accidents: Iterable[Accident] = ()) -> None:
        self.faults = tuple(faults)
        self.accidents = tuple(accidents)
        self._calls: Counter[str] = Counter()
        self._pending = list(self.accidents)
        self._armed: Fault | None = None
        self._armed_ops: frozenset[str] = frozenset()

    def arm(self, kind: Kind, ops: Iterable[str], seconds: float = 10.0) -> None:
        """Let `kind` strike the next call of any of `ops` that can fail so; once, and instead of one armed before."""
        self._armed_ops = frozenset(op for op in ops if kind in OP_KINDS[op])
        self._armed = Fault("any", kind, seconds=seconds)

    @property
    def is_armed(self) -> bool:
        """What was armed has not struck yet."""
        return self._armed is not None

    def counted(self) -> Counter[str]:
        """Calls of each operation so far."""
        return self._calls.copy()

    def take(self, op: str) -> Fault | None:
        """Count one call of `op`; the fault that spoils it, or None."""
        self._calls[op] += 1
        if self._armed is not None and op in self._armed_ops:
            armed, self._armed = self._armed, None
            return armed
        count = self._calls[op]
        return next((f for f in self.faults if f.op == op and f.strikes(count)), None)

    def then(self, accident: Accident) -> None:
        """What follows from one that has happened."""
        self._pending.append(accident)

    def due(self, elapsed: float, states: frozenset[str]) -> tuple[Accident, ...]:
        """Accidents that happen now; each happens once. `states`: those of STATES that the machine is in."""
        now = tuple(a for a in self._pending if _is_due(a, elapsed, states))
        for accident in now:
            self._pending.remove(accident)
        return now

    def next_at(self, states: frozenset[str]) -> float:
        """`elapsed` of the next accident while the machine stays as it is; infinite: none will come by itself."""
        times = (float("-inf") if a.when in states else float(a.when) for a in self._pending if _is_near(a, states))
        return min(times, default=float("inf"))

    def story(self) -> str:
        """One line from which `parse` makes this plan again."""
        return " ".join(str(f) for f in (*self.faults, *self.accidents)) or "nothing"

    @classmethod
    def parse(cls, story: str) -> FaultPlan:
        """The plan of a story. Raises ValueError and names the word that is wrong."""
        faults: list[Fault] = []
        accidents: list[Accident] = []
        for word in () if story.strip() == "nothing" else story.split():
            if word.startswith("@"):
                accidents.append(_parse_accident(word))
            else:
                faults.append(_parse_fault(word))
        return cls(faults, accidents)

    @classmethod
    def random(cls, seed: int, count: int = 3, accidents: int = 0, horizon_s: float = 600.0) -> FaultPlan:
        """`count` faults of calls, `accidents` to the machine before `horizon_s`; the same for the same seed."""
        draw = Random(seed)
        faults = []
        for _ in range(count):
            op = draw.choice(tuple(OP_KINDS))
            kind = draw.choice(OP_KINDS[op])
            faults.append(Fault(op, kind, draw.randint(1, 3), draw.choice(RANDOM_CALLS), float(draw.randint(1, 40))))
        happenings = []
        for _ in range(accidents):
            when = draw.choice((*STATES, *(str(draw.randint(1, int(horizon_s))) for _ in STATES)))
            kind, seconds = draw.choice(ACCIDENT_KINDS), float(draw.randint(1, 3600))
            happenings.append(Accident(when, kind, min(seconds, FULL_MOST_S) if kind is Kind.DISK_FULL else seconds))
        return cls(faults, happenings)


def _is_near(accident: Accident, states: frozenset[str]) -> bool:
    return accident.when in states or accident.when not in STATES


def _is_due(accident: Accident, elapsed: float, states: frozenset[str]) -> bool:
    if accident.when in STATES:
        return accident.when in states
    return elapsed >= float(accident.when)


def _parse_fault(word: str) -> Fault:
    match = _FAULT.fullmatch(word)
    if match is None or match["op"] not in OP_KINDS:
        raise ValueError(f"{word!r} is no fault: write op#call=kind:seconds with one of {', '.join(OP_KINDS)}")
    kind = _kind(word, match["kind"], OP_KINDS[match["op"]])
    return Fault(match["op"], kind, int(match["first"]), _calls(match["calls"]), float(match["s"] or 10))


def _calls(text: str | None) -> int:
    if text is None:
        return 1
    return 0 if text == "+" else int(text[1:])


def _parse_accident(word: str) -> Accident:
    match = _ACCIDENT.fullmatch(word)
    if match is None:
        raise ValueError(f"{word!r} is no accident: write @seconds=kind, or @STATE=kind with {', '.join(STATES)}")
    return Accident(match["when"], _kind(word, match["kind"], ACCIDENT_KINDS), float(match["s"] or 10))


def _kind(word: str, name: str, allowed: tuple[Kind, ...]) -> Kind:
    if name not in allowed:
        raise ValueError(f"{word!r}: {name} cannot happen here, only {', '.join(allowed)}")
    return Kind(name)
