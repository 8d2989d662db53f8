"""`two-to-one`: two applications with weights of 2:1, as published for iShare (Tables III and IV, Figure 4). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from elastio_testbed.bars import Bar
from elastio_testbed.sharing.controls import NONE, SHARES, STRICT, WEIGHTS
from elastio_testbed.sharing.patterns import FIGURE_4, IN_A_ROW, OVERLOADED, PUBLISHED, Pattern
from elastio_testbed.sharing.turns import BAND, SETTLE_S, Turn, ratio, settled, share_right, total_over

# Of each pattern at scale 1.
TURN_S, LEAST_TURN_S = 100.0, 8.0
# A window is what it is at any scale, if two have room in a turn: a shorter one has few requests of a slow volume, so
# with 2:1 it is more often outside of the bounds.
WINDOW_S, SHORTEST_WINDOW_S = 10.0, 2.0

CONTROLS = (NONE, STRICT, WEIGHTS, SHARES)
# With a cache: with bandwidth bought for applications alone, and with more for a flush beside them.
SLOW, BOOSTED, FLUSHING = "slow volume", "boosted", "flushing"
# The patterns of each state of the device, in the order in which they are run.
STATES = {SLOW: IN_A_ROW, BOOSTED: OVERLOADED, FLUSHING: OVERLOADED}
OVER_STRICT = {"U-SW": 1.5, "U-SRW": 1.4, "U-RRW": 1.15}


def turn_s(scale: float) -> float:
    """How long each pattern lasts, in seconds."""
    return max(LEAST_TURN_S, TURN_S * scale)


def window_s(scale: float) -> float:
    return WINDOW_S if turn_s(scale) >= SETTLE_S + 2 * WINDOW_S else SHORTEST_WINDOW_S


def bars(turns: Sequence[Turn]) -> list[Bar]:
    """What has to be, for each state that was run."""
    found = []
    for state in dict.fromkeys(turn.state for turn in turns):
        for pattern in dict.fromkeys(STATES[state]):
            found += _under(state, pattern, turns) if pattern.wants else _over(state, pattern, turns)
        if state == SLOW:
            figure = [turn for turn in turns if turn.state == state and turn.control == SHARES][: len(FIGURE_4)]
            found.append(Bar("Figure 4: changes of pattern that are followed within 3 s", settled(figure), least=1.0))
    return found


def _of(turns: Sequence[Turn], state: str, pattern: Pattern, control: str) -> list[Turn]:
    return [t for t in turns if (t.state, t.pattern, t.control) == (state, pattern.name, control)]


def _over(state: str, pattern: Pattern, turns: Sequence[Turn]) -> list[Bar]:
    shares, none = _of(turns, state, pattern, SHARES), _of(turns, state, pattern, NONE)
    # Of a disk, so to be compared with the slow volume.
    published = PUBLISHED[pattern.name] if state == SLOW else None
    published_ratio = None if published is None else published.shares[0] / published.shares[1]
    published_total = None if published is None else sum(published.shares) / sum(published.none)
    name = f"{state}, {pattern.name}"
    return [
        Bar(f"{name}: windows within {BAND[0]:.2f} to {BAND[1]:.2f}", share_right(shares), least=0.9),
        Bar(f"{name}: ratio", ratio(shares), *BAND, published_ratio),
        Bar(
            f"{name}: total over no control",
            total_over(shares, none),
            least=0.95,
            published=published_total,
        ),
        *(
            Bar(f"{name}: windows within it, {control}", share_right(found), most=0.9)
            for control in (NONE, WEIGHTS)
            if (found := _of(turns, state, pattern, control))
        ),
    ]


def _under(state: str, pattern: Pattern, turns: Sequence[Turn]) -> list[Bar]:
    shares = _of(turns, state, pattern, SHARES)
    published, name = PUBLISHED[pattern.name], f"{state}, {pattern.name}"
    found = [
        Bar(
            f"{name}: total over no control",
            total_over(shares, _of(turns, state, pattern, NONE)),
            least=0.97,
            published=sum(published.shares) / sum(published.none),
        ),
        Bar(f"{name}: what the worse-off application gets of its wish", worse_off(shares), least=0.97),
    ]
    if pattern.name in OVER_STRICT:
        found.append(
            Bar(
                f"{name}: total over the strict partition",
                total_over(shares, _of(turns, state, pattern, STRICT)),
                least=OVER_STRICT[pattern.name],
                published=sum(published.shares) / sum(published.strict),
            )
        )
    return found


def worse_off(turns: Sequence[Turn]) -> float | None:
    """The least part of its wish that an application gets, a mean over each turn."""
    found = [g / w for t in turns if t.windows and t.wants_mb_s for g, w in zip(t.mb_s, t.wants_mb_s, strict=True)]
    return min(found) if found else None
