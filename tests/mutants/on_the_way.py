"""Rules whose breach ends well: nothing is lost, left or billed too much; what happens on the way shows it."""

from __future__ import annotations

from .mutant import Mutant, Patch

MACHINE, CAPS = "elastio/core/machine.py", "elastio/strategy/caps.py"
CAPPED, FILLED = "capped/", "filled/"


def on_the_way(name: str, breaks: str, file: str, old: str, new: str, first: str = "") -> Mutant:
    return Mutant(name, breaks, (Patch(file, old, new),), first=first)


ON_THE_WAY = (
    on_the_way(
        "a capped flush gives way",
        "a flush that a cap began is carried out whatever the load",
        MACHINE,
        "is_filled or detected.capped is not None or",
        "is_filled or",
        first=CAPPED,
    ),
    on_the_way(
        "any flush gives way",
        "a forced flush is carried out whatever the load",
        "elastio/core/detection.py",
        "if not cycle.forced and may_boost_again",
        "if may_boost_again",
        first=CAPPED,
    ),
    on_the_way(
        "a full cache's flush gives way",
        "a flush of a full cache is carried out whatever the load",
        MACHINE,
        "detected.is_ordered or is_filled or",
        "detected.is_ordered or",
        first=FILLED,
    ),
    on_the_way(
        "the same load fills the next cache",
        "no other cache is bought for the load that filled one",
        "elastio/strategy/review.py",
        "if trigger is Trigger.LOAD and memory.has_filled and not has_outgrown:",
        "if False:",
        first=FILLED,
    ),
    on_the_way(
        "held requests end the load",
        "the same, where the release holds requests back",
        "elastio/strategy/filling.py",
        "if knows_one and is_releasing and",
        "if False and",
        first=FILLED,
    ),
    on_the_way(
        "a cap is forgotten",
        "no boost begins after one that a cap has ended",
        MACHINE,
        "state = replace(state, memory=replace(state.memory, capped=detected.capped))",
        "pass",
        first=CAPPED,
    ),
    on_the_way(
        "a cap is forgotten over a restart",
        "the same, over a restart",
        "elastio/strategy/memory.py",
        "capped: Kept[Capped | None]",
        "capped: Capped | None",
        first=CAPPED,
    ),
    on_the_way(
        "a release is predicted without its flush",
        "a boost ends before its bill passes the cap",
        CAPS,
        "MARGIN * (flush_s + rest_s)",
        "MARGIN * rest_s",
        first=CAPPED,
    ),
    on_the_way(
        "an order is forgotten over a fault",
        "an order to flush outlasts a fault, a restart and a boot",
        "elastio/core/recovery.py",
        "if phase is Phase.BOOSTING and cycle.forced:",
        "if phase is Phase.BOOSTING and cycle.forced and state.phase is Phase.FLUSHING:",
        first="operator/",
    ),
    on_the_way(
        "a set that failed clean is forgotten",
        "what the agent saw fail clean needs no human after a boot",
        "elastio/core/state.py",
        "failed_clean_set: Kept[str]",
        "failed_clean_set: str",
        first="/the cache is seen to die",
    ),
    on_the_way(
        "wasted volumes stop nothing",
        "eight volumes in a row that never became a cache are the last",
        "elastio/strategy/waste.py",
        "if wasted < MOST_WASTED:",
        "if True:",
    ),
)
