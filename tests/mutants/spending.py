"""Rules of caps: of money and of a month, and of those that several agents share."""

from __future__ import annotations

from .mutant import Mutant, Patch

CAPS, SHARING = "elastio/strategy/caps.py", "elastio/agent/cap_sharing.py"
SHARED = "shared/"


def of_caps(name: str, breaks: str, file: str, old: str, new: str, first: str = "") -> Mutant:
    return Mutant(name, breaks, (Patch(file, old, new),), first=first)


SPENDING = (
    of_caps(
        "a cap of a month ends no boost",
        "a boost ends before its bill passes the cap of a month",
        CAPS,
        '        ("month", spend.this_month, caps.month, spend.month),\n',
        "",
    ),
    of_caps(
        "a cap on cost ends no boost",
        "a boost ends before its bill passes a cap on cost",
        CAPS,
        "        if max_cost is not None:\n            yield",
        "        if False:\n            yield",
    ),
    of_caps(
        "a boost goes on beyond its reservation",
        "what a boost costs is reserved before it is spent",
        CAPS,
        "if others is None or others.granted_until_wall is None or until <= others.granted_until_wall:",
        "if True:",
        first=SHARED,
    ),
    of_caps(
        "reservations are never refused",
        "agents that share a cap do not pass it together",
        SHARING,
        "policy.caps.shared_limits if policy.caps.ends_boosts and state.phase not in RELEASING else None",
        "None",
    ),
    of_caps(
        "what cannot be stated is granted",
        "a boost ends whose bill the others do not know",
        SHARING,
        'trouble = "" if error.code == "shared.locked" else str(error)',
        'trouble, self._granted = "", 4e9',
        first=SHARED,
    ),
    of_caps(
        "a shared cap is forgotten",
        "no boost begins after one that a shared cap has ended",
        CAPS,
        "Capped(SHARED, 0.0, spend.day) if full is None else",
        "Capped(SHARED, 0.0, spend.day) if True else",
    ),
)
