"""`elastio-testbed run two-to-one`: the patterns of both states of the device, under every control, in one guest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from elastio.core.capacity import USABLE, USUAL_COST, LimitedBy
from elastio.units import MB
from elastio_testbed.bars import Asked
from elastio_testbed.conditions import observe
from elastio_testbed.console import Say
from elastio_testbed.image import build_guest_image
from elastio_testbed.sharing import two_to_one
from elastio_testbed.sharing.applications import EVERY_S, Applications, Work, applications, partition
from elastio_testbed.sharing.controls import SHARES, STRICT, WEIGHTS
from elastio_testbed.sharing.patterns import Pattern
from elastio_testbed.sharing.turns import Turn, mean_mb_s, wanted_mb_s, windows
from elastio_testbed.sharing.two_to_one import CONTROLS, FLUSHING, SLOW, STATES


def two_to_one_result(asked: Asked, keep: Callable[[Mapping[str, Any]], None], say: Say) -> dict[str, Any]:
    """Run it; `keep` gets the document after each control. Raises HypervisorError, ImageError."""
    turns: list[Turn] = []
    with applications(build_guest_image(suite=asked.suite), asked.bandwidth, asked.seed) as both:
        conditions = observe(both.guest.check(["uname", "-r"]))
        found: dict[str, Any] = {}
        for state in STATES:
            if state != SLOW:
                both.boost(flushes=state == FLUSHING)
            for control in _controls(both, state):
                say(f"two-to-one: {state}, {control}")
                turns += _turns(both, state, control, asked.scale)
                found = _document(asked, asdict(conditions), both, turns)
                keep(found)
    return found


def _controls(both: Applications, state: str) -> tuple[str, ...]:
    """The controls of a state. A strict partition is of interest for underloaded patterns, which only one state has."""
    without = set() if state == SLOW else {STRICT}
    return tuple(control for control in CONTROLS if control not in without | both.absent(CONTROLS).keys())


def _capacity_mb_s(both: Applications, state: str) -> float:
    """What applications can have, without a flush."""
    return (
        both.slow_mb_s if state == SLOW else USABLE[LimitedBy.CACHE] / USUAL_COST * both.guest.scaled.cache_bytes_s / MB
    )


def _turns(both: Applications, state: str, control: str, scale: float) -> list[Turn]:
    patterns, seconds = STATES[state], two_to_one.turn_s(scale)
    capacity_mb_s = _capacity_mb_s(both, state)
    both.share({"enabled": "true" if control == SHARES else "false"})
    works = tuple(
        [_work(pattern, seconds, capacity_mb_s, number, is_strict=control == STRICT) for pattern in patterns]
        for number in (0, 1)
    )
    seen = both.run((works[0], works[1]), are_weighed=control in (WEIGHTS, SHARES))
    both.require_phase("idle" if state == SLOW else "boosting")
    moved = [_bytes(each) for each in seen.intervals]
    window_s = two_to_one.window_s(scale)
    return [
        Turn(
            state,
            control,
            pattern.name,
            windows(moved, number * seconds, (number + 1) * seconds, EVERY_S, window_s),
            wanted_mb_s(pattern, capacity_mb_s),
            0.0 if state == SLOW else mean_mb_s(seen.below_bytes, number * seconds, (number + 1) * seconds, EVERY_S),
        )
        for number, pattern in enumerate(patterns)
    ]


def _work(pattern: Pattern, seconds: float, capacity_mb_s: float, number: int, *, is_strict: bool) -> Work:
    """What an application (0 or 1) does. A strict partition of a mixed pattern gives each kind its part."""
    wants = wanted_mb_s(pattern, capacity_mb_s)
    limits = partition(capacity_mb_s, pattern.reads) if is_strict else None
    rate = 0.0 if wants is None else wants[number]
    return Work(seconds, pattern.sizes, pattern.is_random, pattern.reads, rate, limits)


def _bytes(intervals: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in intervals:
        found[each["interval"]] = found.get(each["interval"], 0) + each["bytes"]
    return found


def _document(asked: Asked, conditions: Mapping[str, Any], both: Applications, turns: Sequence[Turn]) -> dict[str, Any]:
    return {
        **about("two-to-one", asked, conditions, both, CONTROLS),
        "turn_s": two_to_one.turn_s(asked.scale),
        "window_s": two_to_one.window_s(asked.scale),
        "capacity_mb_s": {state: round(_capacity_mb_s(both, state), 2) for state in STATES},
        "bars": [bar.to_json() for bar in two_to_one.bars(turns)],
        "turns": [turn.to_json() for turn in turns],
    }


def about(
    experiment: str, asked: Asked, conditions: Mapping[str, Any], both: Applications, controls: Sequence[str]
) -> dict[str, Any]:
    """What the result of an experiment with two applications says before its figures."""
    return {
        "experiment": experiment,
        **conditions,
        "scale": asked.scale,
        "bandwidth": asked.bandwidth,
        "services": [asdict(service) for service in both.services],
        "absent": [{"control": control, "reason": reason} for control, reason in both.absent(controls).items()],
    }
