"""Rules of the learned bandwidth: what is bought, what is kept, and what a raise has to save."""

from __future__ import annotations

from .mutant import Mutant, Patch

BANDWIDTH, LEARNING = "elastio/strategy/bandwidth.py", "elastio/strategy/learning.py"
ABOVE, SLOWER = "tests/unit/elastio/strategy/test_bandwidth.py", "slower/"
TRIAL = "the bursts of the simulator follow their curve too closely for a rule of its own"


def of_learning(name: str, breaks: str, file: str, old: str, new: str, test: str = "", why: str = "") -> Mutant:
    return Mutant(name, breaks, (Patch(file, old, new),), test, why, first="" if test else SLOWER)


LEARNS = (
    of_learning(
        "a cache is bought above B*",
        "nothing is bought above B*",
        BANDWIDTH,
        "most = max(bounds.least_mb_s, min(best, allowed))",
        "most = max(bounds.least_mb_s, allowed)",
    ),
    of_learning(
        "B* is that of no waiting",
        "B* is that of the waiting for bandwidth",
        BANDWIDTH,
        "rest_s = sum(lesson.seconds for lesson in lessons) - waited_s",
        "rest_s = 0.01 * sum(lesson.seconds for lesson in lessons)",
    ),
    of_learning(
        "a cache is faster than is allowed",
        "nothing is bought above the configured bound",
        BANDWIDTH,
        "return max(bounds.least_mb_s, min(wanted, bounds.most_mb_s, limit_mb_s))",
        "return STEP**3 * wanted",
    ),
    of_learning(
        "what was learned is forgotten at a start",
        "the bandwidth is learned over restarts",
        "elastio/strategy/memory.py",
        "bandwidth: Kept[LearnedBandwidth | None]",
        "bandwidth: LearnedBandwidth | None",
        "tests/scenario/test_bandwidth.py",
        "a cache of the first bandwidth is no harm",
    ),
    of_learning(
        "a raise is never taken back",
        "a raise that saved less than half of what was promised is taken back",
        BANDWIDTH,
        "if most >= KEPT_PROMISE * trial.promised:",
        "if True:",
        ABOVE,
        TRIAL,
    ),
    of_learning(
        "a raise that was taken back is repeated",
        "what was taken back is remembered",
        BANDWIDTH,
        " or mb_s > _refused_mb_s(known) * ROUNDING",
        "",
        ABOVE,
        TRIAL,
    ),
    of_learning(
        "the bandwidth changes within a cycle",
        "a learned bandwidth changes only between cycles",
        LEARNING,
        "at.phase_known and at.phase is Phase.IDLE and at.cycle is None",
        "True",
        "tests/scenario/test_bandwidth.py",
        "only what is bought is watched in a schedule",
    ),
)
