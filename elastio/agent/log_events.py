"""Log events: the kinds of records that the agent's log and `elastio events` consist of, and their fields.

Every kind has a MESSAGE_ID that never changes, so that a program finds its records whatever their sentence says. The
reference page docs/reference/log.md is made from the tables of this module.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import Enum, IntEnum
from typing import Any


class Priority(IntEnum):
    """Of syslog(3)."""

    ERR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6


class EventKind(Enum):
    """A kind of log event: its MESSAGE_ID, its priority, and what it says. Its label is its name in lower case."""

    BOOST_WANTED = (
        "9a035f3c27e8479c83dab8553333e626",
        Priority.NOTICE,
        "A cache is to be bought, and why. Its price is known only after the purchase.",
    )
    BOOST_DECLINED = (
        "14aa16658a6f44b2955d82a0affb0755",
        Priority.NOTICE,
        "No cache is bought for a load or an expected burst, because it would not be worth its price.",
    )
    BOOST_CAPPED = (
        "0e1d6232229a4ba58f1e497c1529083f",
        Priority.WARNING,
        "No cache is bought, or a boost is ended, because of a cap.",
    )
    BOOST_REFUSED = (
        "f2daeaf9ceeb4dbea2e65628a67ad70c",
        Priority.WARNING,
        "The cloud refused the purchase: nothing was bought.",
    )
    BOOST_ABANDONED = (
        "d83bc372fa47481b8d32efb04cdca061",
        Priority.WARNING,
        "No cache was attached in time, or its volume failed: what was bought is released.",
    )
    BOOST_WITHDRAWN = (
        "497a891700db45d2bb5b8b3c900fb84b",
        Priority.NOTICE,
        "The boost was no longer wanted before its cache was attached.",
    )
    VOLUME_CREATED = (
        "9d1e87169b734a1bb0ed2db6f403855d",
        Priority.INFO,
        "The cloud created a volume: its size, bandwidth and price as provisioned.",
    )
    VOLUME_ATTACHED = ("b1bc3b75e8094ebf9b3f019ded763177", Priority.INFO, "The kernel shows the disk of the volume.")
    CACHE_ATTACHED = ("d1cbe9d44df64cec9264728feb047c81", Priority.NOTICE, "The cache takes writes.")
    FLUSH_BEGUN = ("54055694239248c6a0395c4982639954", Priority.NOTICE, "The flush began, and why.")
    BOOST_RESUMED = (
        "5ce4518a13d44b1595fb324fbc932006",
        Priority.NOTICE,
        "The load is back, or an operator asked: the cache that is being flushed takes writes again.",
    )
    FLUSH_OVER = ("d4c4bec42a7d48719c0a22d1a0cb63bf", Priority.NOTICE, "The cache is clean.")
    CACHE_LEFT = (
        "0d332e94280d41739c891917fb9f6b1d",
        Priority.WARNING,
        "The kernel no longer shows the cache set, and this agent did not detach it.",
    )
    VOLUME_DETACHED = ("7876f8e765e848edb2b7b3471c1129c3", Priority.INFO, "The volume is detached from the machine.")
    VOLUME_DELETED = (
        "ad4a67b13a7d44d3ad91e850c856b363",
        Priority.INFO,
        "The cloud accepted the deletion of the volume: its bill has ended.",
    )
    BOOST_OVER = (
        "75a721abe6874153b1f438773369cbf7",
        Priority.NOTICE,
        "The summary of one boost for which a volume was bought. There is one for each.",
    )
    ORPHAN_FOUND = (
        "b93c95f7da564db59b74a3eab9a389e2",
        Priority.WARNING,
        "The cloud lists a volume of this agent that belongs to no cycle: it is released.",
    )
    FAULT = ("3d3c97b0dc01402fbd6fa1ffbaf7f2e7", Priority.ERR, "Only an operator can decide how to go on.")
    RECOVERED = ("abaa334b6c58414798ebe3c7476b3013", Priority.NOTICE, "The fault is over.")
    ORDER = (
        "b0fb13e3202d4b7baca1d5cbeb6069f9",
        Priority.NOTICE,
        "A request of an operator was accepted. One that is refused changes nothing and is not recorded.",
    )
    ERROR = (
        "e716f546fad7481b9b4b1345929bd4bd",
        Priority.WARNING,
        "Something failed that worked before, or fails for another reason. The agent tries again.",
    )
    ERROR_OVER = ("509b96cca6a0412f96d30716508c9ae6", Priority.INFO, "What failed works again, or is no longer needed.")
    DECIDED = (
        "e74c844fff54401186518a8b046f4844",
        Priority.INFO,
        "A decision of another kind: an inhibition began or ended, the phase was read from the kernel.",
    )

    def __init__(self, message_id: str, priority: Priority, meaning: str) -> None:
        self.label = self.name.lower().replace("_", "-")
        self.message_id, self.priority, self.meaning = message_id, priority, meaning


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One record of the log. Fields of which nothing is known are None; `FIELDS` says what each is."""

    kind: EventKind
    wall: float
    message: str
    device: str | None = None
    phase: str | None = None
    cycle: str | None = None
    volume: str | None = None
    gib: float | None = None
    mb_s: float | None = None
    price_per_hour: float | None = None
    currency: str | None = None
    reason: str | None = None
    trigger: str | None = None
    asked_by: str | None = None
    order: str | None = None
    dirty_gib: float | None = None
    after_s: float | None = None
    billed_s: float | None = None
    cost: float | None = None


# The fields of a log event besides its kind, time and message; in the journal of systemd their names are upper case.
FIELDS = {
    "device": "backing UUID of the adaptive device",
    "phase": "phase of the state machine after the event",
    "cycle": "token of the cycle: the same in all records of one boost, and a tag of its volume",
    "volume": "the cloud's ID of the cache volume",
    "gib": "its size in GiB (2^30 bytes), as provisioned; before the purchase as wanted",
    "mb_s": "its bandwidth in MB/s (10^6 bytes per second), likewise",
    "price_per_hour": "its price; missing if it is not known",
    "currency": "of `price_per_hour` and `cost`",
    "reason": "why, or what was seen: a sentence",
    "trigger": "what began the boost: `load`, `operator`, `announced`, `forecast` or `orphan`",
    "asked_by": "uid of the operator who asked, as the kernel knows it of the control socket; `operator` if it is not "
    "known, `agent` if nobody asked",
    "order": "the request of an operator, as the control socket names it",
    "dirty_gib": "GiB that are dirty when a flush begins; in a summary the most that were",
    "after_s": "seconds from the decision to buy to this event; in a summary to the attached cache",
    "billed_s": "seconds from the creation of the volume to its deletion",
    "cost": "what the boost cost, with the least billed time of its volume",
}


def fields_of(event: LogEvent) -> dict[str, str]:
    """The fields of the record in the journal of systemd, by their names there, without its message and priority."""
    known = {name.upper(): getattr(event, name) for name in FIELDS}
    shown = {name: f"{value:g}" if isinstance(value, float) else value for name, value in known.items()}
    head = {"MESSAGE_ID": event.kind.message_id, "ELASTIO_EVENT": event.kind.label}
    return head | {name: value for name, value in shown.items() if value is not None}


def to_dict(event: LogEvent) -> dict[str, Any]:
    """The record for JSON: always the same keys in the same order; None: not known."""
    at = datetime.fromtimestamp(event.wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    kind = event.kind
    head = {"time": at, "event": kind.label, "priority": kind.priority.name.lower(), "message": event.message}
    rest = {f.name: getattr(event, f.name) for f in fields(event)}
    return head | {"message_id": kind.message_id} | {name: rest[name] for name in FIELDS}
