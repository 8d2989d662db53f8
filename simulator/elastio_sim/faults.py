"""What goes wrong, and when: a plan that follows from a seed and can be written on one line.

A fault specification is a list of words. `create#2=throttle` makes the second call of `create` fail, `attach#1x5=hang`
the first five, `attach#1+=hang` all of them. `attach#1=late_success:8` has a number of seconds. Scheduled faults begin
with `@`: `@90=vanish` happens 90 s after the start of the simulation, `@dirty=vanish` as soon as the cache is dirty,
`@clean=vanish` as soon as an attached cache is clean, and `@limited=disk_full:600` as soon as the agent limits the
writes of applications.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import TypeVar

from elastio.errors import ElastioError


class FaultMode(StrEnum):
    """Ways to fail. A call whose answer is lost has had its effect; one that hangs has not."""

    REFUSE = "refuse"  # the cloud: wrong request; the host: a sysfs write failed
    THROTTLE = "throttle"
    QUOTA = "quota"
    EXPIRED = "expired"  # credentials
    BUSY = "busy"  # the host: device or resource busy
    HANG = "hang"  # nothing happens and no answer comes
    LOSE_REPLY = "lose_reply"  # it happens at once, the answer is an error that may pass
    LATE_SUCCESS = "late_success"  # no answer comes; it happens `seconds` later
    HALF = "half"  # the host: killed halfway
    WRONG_DEVICE = "wrong_device"  # a disk of another volume appears beside the right one
    WRONG_SIZE = "wrong_size"  # the disk that appears has another size
    STUCK = "stuck"  # attaching, detaching, creating or deleting takes `seconds` longer
    STUCK_BUSY = "stuck_busy"  # the guest keeps the disk in use for `seconds`
    VOLUME_ERROR = "volume_error"  # the volume ends in the state "error"
    UNSEEN = "unseen"  # the new volume is not listed for `seconds`
    NO_SPACE = "no_space"  # the journal cannot be written
    UNSYNCED = "unsynced"  # the journal is written, and the error of its sync says that it is not
    VANISH = "vanish"  # surprise removal of the cache disk
    POWER_CUT = "power_cut"
    WALL_JUMP = "wall_jump"  # the time of day steps by `seconds`
    STOP = "stop"  # SIGSTOP: the agent is stopped for `seconds`, the machine is not
    KILL = "kill"  # the OOM killer kills the agent, which is restarted `seconds` later
    DISK_FULL = "disk_full"  # nothing can be written to the journal for `seconds`
    LOCKED = "locked"  # somebody holds the write lock of the ledger for `seconds`: it can be read
    UNREADABLE = "unreadable"  # where caps are shared: the statement of another device cannot be read for `seconds`
    UNWRITABLE = "unwritable"  # the same: the own statement cannot be written
    SWAP = "swap"  # an operator replaces the backing disk by an older copy for `seconds`
    SWAP_ALIKE = "swap_alike"  # the same, once the journal knows of a cache; the copy has the same serial
    SWAP_NAMELESS = "swap_nameless"  # the same, and the copy has no serial
    SWAP_BACK = "swap_back"  # the machine is powered off and gets its own disk back
    DETACH_BY_HAND = "detach_by_hand"  # an operator detaches the cache set in sysfs
    WRITEBACK = "writeback"  # an operator sets this cache mode in sysfs; so the next ones
    WRITETHROUGH = "writethrough"
    WRITEAROUND = "writearound"
    UNCACHED = "none"
    RELOAD = "reload"  # an operator has changed the configuration, and the agent reloads it
    KILL_CHILD = "kill_child"  # the OOM killer kills the children of the workers: their jobs get no answer


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `calls` calls of `op`, from call number `first` on; `calls` 0: all later ones."""

    op: str
    kind: FaultMode
    first: int = 1
    calls: int = 1
    seconds: float = 10.0

    def strikes(self, count: int) -> bool:
        """True if call number `count` fails."""
        return count >= self.first and (self.calls == 0 or count < self.first + self.calls)

    def __str__(self) -> str:
        calls = {0: "+", 1: ""}.get(self.calls, f"x{self.calls}")
        return f"{self.op}#{self.first}{calls}={self.kind}:{self.seconds:g}"


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A fault of the machine or the agent. `when`: a time in seconds, or one of STATES."""

    when: str
    kind: FaultMode
    seconds: float = 10.0

    def at(self, states: frozenset[str]) -> float:
        """`elapsed` from which on it happens to a machine in these states; infinite where the state is not there."""
        if self.when in STATES:
            return -math.inf if self.when in states else math.inf
        return float(self.when)

    def __str__(self) -> str:
        return f"@{self.when}={self.kind}:{self.seconds:g}"


CALL_KINDS = (
    FaultMode.REFUSE,
    FaultMode.THROTTLE,
    FaultMode.QUOTA,
    FaultMode.EXPIRED,
    FaultMode.HANG,
    FaultMode.LOSE_REPLY,
    FaultMode.LATE_SUCCESS,
)
HOST_KINDS = (FaultMode.REFUSE, FaultMode.BUSY, FaultMode.HANG, FaultMode.LOSE_REPLY, FaultMode.LATE_SUCCESS)
PROVIDER_KINDS: dict[str, tuple[FaultMode, ...]] = {
    "identify": (FaultMode.THROTTLE, FaultMode.EXPIRED, FaultMode.HANG),
    "quote": (FaultMode.REFUSE, FaultMode.THROTTLE, FaultMode.HANG),
    "create": (*CALL_KINDS, FaultMode.STUCK, FaultMode.VOLUME_ERROR, FaultMode.UNSEEN),
    "attach": (
        *CALL_KINDS,
        FaultMode.STUCK,
        FaultMode.WRONG_DEVICE,
        FaultMode.WRONG_SIZE,
        FaultMode.VOLUME_ERROR,
    ),
    "detach": (*CALL_KINDS, FaultMode.STUCK, FaultMode.STUCK_BUSY),
    "delete": (*CALL_KINDS, FaultMode.STUCK),
    "describe": (FaultMode.THROTTLE, FaultMode.EXPIRED, FaultMode.HANG),
    "list_owned": (FaultMode.THROTTLE, FaultMode.EXPIRED, FaultMode.HANG),
}
TAKE_OVER_KINDS: dict[str, tuple[FaultMode, ...]] = {
    "foreign": (FaultMode.THROTTLE, FaultMode.EXPIRED, FaultMode.HANG),
    "take_over": CALL_KINDS,
    "list_for_backing": (FaultMode.THROTTLE, FaultMode.EXPIRED, FaultMode.HANG),
}
HOST_OP_KINDS: dict[str, tuple[FaultMode, ...]] = {
    "scan": (FaultMode.REFUSE, FaultMode.HANG),
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
    "release_cache_disk": (*HOST_KINDS, FaultMode.HALF),
    "make_durable": HOST_KINDS,
}
AGENT_KINDS = {"journal": (FaultMode.NO_SPACE,)}
RANDOM_OP_KINDS = {**PROVIDER_KINDS, **HOST_OP_KINDS, **AGENT_KINDS}
OP_KINDS = {**RANDOM_OP_KINDS, **TAKE_OVER_KINDS, "journal": (*AGENT_KINDS["journal"], FaultMode.UNSYNCED)}
# Random faults end: one that does not only proves that nothing can be done.
RANDOM_CALLS = (1, 1, 1, 1, 2, 6)
AGENT_FAULTS = (FaultMode.STOP, FaultMode.KILL, FaultMode.KILL_CHILD, FaultMode.DISK_FULL)
UNANNOUNCED_SWAPS = (FaultMode.SWAP_ALIKE, FaultMode.SWAP_NAMELESS)
SWAPS = (FaultMode.SWAP, *UNANNOUNCED_SWAPS)
BY_HAND = (*SWAPS, FaultMode.DETACH_BY_HAND)
RANDOM_KINDS = (FaultMode.VANISH, FaultMode.POWER_CUT, FaultMode.WALL_JUMP, *AGENT_FAULTS, *BY_HAND)
MODES = (FaultMode.WRITEBACK, FaultMode.WRITETHROUGH, FaultMode.WRITEAROUND, FaultMode.UNCACHED)
SHARED_CAPS = (FaultMode.UNREADABLE, FaultMode.UNWRITABLE)
SCHEDULED_KINDS = (*RANDOM_KINDS, FaultMode.LOCKED, *MODES, FaultMode.RELOAD, *SHARED_CAPS)
STATES = ("dirty", "clean", "limited")
FULL_MOST_S = 900.0

_FAULT = re.compile(
    r"(?P<op>[a-z_0-9]+)#(?P<first>[1-9]\d*)(?P<calls>\+|x[1-9]\d*)?=(?P<kind>[a-z_]+)(:(?P<s>-?[\d.]+))?"
)
_SCHEDULED = re.compile(r"@(?P<when>dirty|clean|limited|[\d.]+)=(?P<kind>[a-z_]+)(:(?P<s>-?[\d.]+))?")


class FaultPlan:
    """Faults of calls and scheduled ones. Counts the calls of each operation, from zero on."""

    def __init__(self, faults: Iterable[Fault] = (), scheduled: Iterable[ScheduledFault] = ()) -> None:
        self.faults = tuple(faults)
        self.scheduled = tuple(scheduled)
        self._calls: Counter[str] = Counter()
        self._pending = list(self.scheduled)
        self._armed: Fault | None = None
        self._armed_ops: frozenset[str] = frozenset()

    def arm(self, kind: FaultMode, ops: Iterable[str], seconds: float = 10.0) -> None:
        """Let the next call of `ops` that can fail this way fail, once. Replaces a fault that was armed before."""
        self._armed_ops = frozenset(op for op in ops if kind in OP_KINDS[op])
        self._armed = Fault("any", kind, seconds=seconds)

    def begin(self, plan: FaultPlan) -> None:
        """From now on what this plan says, also what should have been before; calls are counted from zero again."""
        self.faults, self.scheduled, self._pending = plan.faults, plan.scheduled, list(plan.scheduled)
        self._calls.clear()

    @property
    def is_armed(self) -> bool:
        """True until the armed fault has struck."""
        return self._armed is not None

    def counted(self) -> Counter[str]:
        """How often each operation was called."""
        return self._calls.copy()

    def take(self, op: str) -> Fault | None:
        """Count one call of `op`. Returns its fault, or None."""
        self._calls[op] += 1
        if self._armed is not None and op in self._armed_ops:
            armed, self._armed = self._armed, None
            return armed
        count = self._calls[op]
        return next((f for f in self.faults if f.op == op and f.strikes(count)), None)

    def add(self, fault: ScheduledFault) -> None:
        """A consequence of a fault that has happened."""
        self._pending.append(fault)

    def due(self, elapsed: float, states: frozenset[str]) -> tuple[ScheduledFault, ...]:
        """Scheduled faults that happen now, each once. `states`: those of STATES that the machine is in."""
        now = tuple(f for f in self._pending if elapsed >= f.at(states))
        for fault in now:
            self._pending.remove(fault)
        return now

    def next_at(self, states: frozenset[str]) -> float:
        """`elapsed` of the next scheduled fault while the state stays; infinite where none is due at a time."""
        return min((f.at(states) for f in self._pending), default=math.inf)

    def spec(self) -> str:
        """The specification from which `parse` makes this plan again."""
        return " ".join(str(f) for f in (*self.faults, *self.scheduled)) or "nothing"

    @classmethod
    def parse(cls, spec: str) -> FaultPlan:
        """The plan of a specification. Raises ValueError and names the word that is wrong."""
        faults: list[Fault] = []
        scheduled: list[ScheduledFault] = []
        for word in () if spec.strip() == "nothing" else spec.split():
            if word.startswith("@"):
                scheduled.append(_parse_scheduled(word))
            else:
                faults.append(_parse_fault(word))
        return cls(faults, scheduled)

    @classmethod
    def random(cls, seed: int, count: int = 3, scheduled: int = 0, horizon_s: float = 600.0) -> FaultPlan:
        """`count` faults of calls, `scheduled` ones before `horizon_s`; the same for the same seed."""
        draw = Random(seed)
        faults = []
        for _ in range(count):
            op = draw.choice(tuple(RANDOM_OP_KINDS))
            kind = draw.choice(RANDOM_OP_KINDS[op])
            faults.append(Fault(op, kind, draw.randint(1, 3), draw.choice(RANDOM_CALLS), float(draw.randint(1, 40))))
        later = []
        for _ in range(scheduled):
            when = draw.choice((*STATES, *(str(draw.randint(1, int(horizon_s))) for _ in STATES)))
            kind, seconds = draw.choice(RANDOM_KINDS), float(draw.randint(1, 3600))
            later.append(
                ScheduledFault(when, kind, min(seconds, FULL_MOST_S) if kind is FaultMode.DISK_FULL else seconds)
            )
        return cls(faults, later)


def _parse_fault(word: str) -> Fault:
    match = _FAULT.fullmatch(word)
    if match is None or match["op"] not in OP_KINDS:
        raise ValueError(f"{word!r} is not a fault: write op#call=kind:seconds, with op one of {', '.join(OP_KINDS)}")
    kind = _kind(word, match["kind"], OP_KINDS[match["op"]])
    return Fault(match["op"], kind, int(match["first"]), _calls(match["calls"]), float(match["s"] or 10))


def _calls(text: str | None) -> int:
    if text is None:
        return 1
    return 0 if text == "+" else int(text[1:])


def _parse_scheduled(word: str) -> ScheduledFault:
    match = _SCHEDULED.fullmatch(word)
    if match is None:
        raise ValueError(
            f"{word!r} is not a scheduled fault: write @seconds=kind, or @STATE=kind with {', '.join(STATES)}"
        )
    return ScheduledFault(match["when"], _kind(word, match["kind"], SCHEDULED_KINDS), float(match["s"] or 10))


def _kind(word: str, name: str, allowed: tuple[FaultMode, ...]) -> FaultMode:
    if name not in allowed:
        raise ValueError(f"{word!r}: {name} cannot happen here, only {', '.join(allowed)}")
    return FaultMode(name)


T = TypeVar("T")


class Meter:
    """Adds up the duration of calls, over all the ports that one job of a worker may use."""

    def __init__(self) -> None:
        self.seconds = 0.0


class FaultInjector:
    """Executes calls under a fault plan and measures how long each took.

    `seconds` is the simulated duration of the last call; infinite if no answer came, so that a worker times out.
    Without a worker such a call raises its error at once, as adapters bound every call themselves.
    """

    def __init__(
        self,
        faults: FaultPlan,
        later: Callable[[float, Callable[[], None]], None],
        errors: dict[FaultMode, tuple[type[ElastioError], str]],
        meter: Meter | None = None,
    ) -> None:
        self.faults = faults
        self.meter = meter or Meter()
        self.seconds = 0.0
        self.late_errors: list[ElastioError] = []
        self._later = later
        self._errors = errors

    def run(self, op: str, seconds: float, call: Callable[[Fault | None], T]) -> T:
        """`call` gets the fault if it changes the effect and not the answer."""
        self.seconds = seconds
        try:
            return self._strike(op, self.faults.take(op), call)
        finally:
            self.meter.seconds += self.seconds

    def _strike(self, op: str, fault: Fault | None, call: Callable[[Fault | None], T]) -> T:
        if fault is None:
            return call(None)
        if fault.kind is FaultMode.HANG:
            self.seconds = math.inf
            raise self._error(fault, op)
        if fault.kind is FaultMode.LATE_SUCCESS:
            self.seconds = math.inf
            self._later(fault.seconds, lambda: self._late(call))
            raise self._error(fault, op)
        if fault.kind in {FaultMode.LOSE_REPLY, FaultMode.HALF}:
            call(fault)
            raise self._error(fault, op)
        if fault.kind in self._errors:
            raise self._error(fault, op)
        return call(fault)

    def _late(self, call: Callable[[Fault | None], T]) -> None:
        of_the_last_call = self.seconds
        try:
            call(None)
        except ElastioError as error:
            # Nobody waits for this answer any more. Tests may look at it.
            self.late_errors.append(error)
        finally:
            self.seconds = of_the_last_call

    def _error(self, fault: Fault, op: str) -> ElastioError:
        kind, text = self._errors[fault.kind]
        return kind(f"{op}: {text} (simulated)", code=fault.kind)
