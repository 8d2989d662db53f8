"""The frames of `elastio watch`: golden files at two sizes, and no line that is wider than the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.control.status import Status
from elastio.core.cycle import CacheUse
from elastio.core.state import Phase
from elastio.units import GIB
from elastio_cli.charts import ASCII, BLOCKS, Style, width
from elastio_cli.watch_view import Format, Watched, frame, log_line

from .conftest import Golden, published, standing
from .test_status import CYCLE, LOAD, QUOTE, SITUATIONS, VOLUME

WALL = 1_790_000_000.0
CYCLES = replace(CYCLE, quote=QUOTE, opened_wall=WALL - 98, flush_started_dirty_bytes=4 * GIB, use=CacheUse(4 * GIB))
SIZES = {"80x24": Format(80, 24), "200x50": Format(200, 50)}


def at(phase: Phase, turn: int, rate: float, dirty_bytes: int, **state: Any) -> Status:
    cycle = None if phase is Phase.IDLE else CYCLES
    seen = published(standing(phase, cycle=cycle, owned=(VOLUME,), load=LOAD, **state), dirty_bytes=dirty_bytes)
    load = replace(seen.load, read_mb_s=rate / 10, write_mb_s=rate * 9 / 10)
    return replace(seen, wall=WALL + 2 * turn, load=load, spend=replace(seen.spend, currency="USD", max_cost=1.0))


def course() -> Iterator[Status]:
    """A burst: 40 s idle, 10 s attaching, 80 s of load, and a flush that is not finished."""
    for turn in range(85):
        if turn < 20:
            yield at(Phase.IDLE, turn, 1.0 + turn % 3, 0)
        elif turn < 25:
            yield at(Phase.ATTACHING, turn, 58.0, 0, waiting_for="the volume to be attached")
        elif turn < 65:
            yield at(
                Phase.BOOSTING, turn, 90.0 + 10 * (turn % 4), (turn - 24) * GIB // 10, waiting_for="the load to end"
            )
        else:
            yield at(Phase.FLUSHING, turn, 0.4, 4 * GIB - (turn - 64) * GIB // 10, waiting_for="the flush")


def watched(turns: int) -> Watched:
    seen: Watched | None = None
    for turn, status in enumerate(course()):
        if turn < turns:
            begun = status.wall if seen is None or seen.status.phase != status.phase else None
            seen = seen.answered(status, 2.0 * turn, begun) if seen else Watched.first(status, 0.0, None)
    assert seen is not None
    return seen


FAILED = "the quota of volume storage in this region is reached (VolumeLimitExceeded): ask for more, or delete volumes"
FRAMES = {
    "idle": watched(15),
    "boosting": watched(60),
    "flushing": watched(85),
    "silent": replace(watched(60).silent("the agent did not answer on /run/elastio/elastio.sock within 3 s", 125.0)),
    "troubled": replace(
        watched(60), status=replace(next(iter(course())), fault="the device waits for a cache that is missing",
                                    phase="faulted", last_error=FAILED, paused=True, wall=WALL + 118)
    ),
}  # fmt: skip


def text_of(seen: Watched, form: Format) -> str:
    return "\n".join(line.text.rstrip() for line in frame(seen, seen.points[-1].at_s + 0.5, form)) + "\n"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FRAMES)
def test_frames(name: str, size: str, golden: Golden) -> None:
    golden(f"watch_{name}_{size}.txt", text_of(FRAMES[name], SIZES[size]))


@pytest.mark.parametrize("columns", [40, 60, 72])
@pytest.mark.parametrize("name", FRAMES)
def test_the_clock_of_a_narrow_terminal_is_whole(name: str, columns: int) -> None:
    first = text_of(FRAMES[name], Format(columns, 24)).partition("\n")[0]
    assert re.fullmatch(r"[A-Z]+ for .* \d\d:\d\d:\d\d", first)
    assert len(first) <= columns


def test_devices_are_shown_when_asked_for_and_plain_characters_where_needed(golden: Golden) -> None:
    form = Format(100, 40, symbols=ASCII, with_device=True)
    golden("watch_device_ascii.txt", text_of(watched(60), form))
    assert text_of(watched(60), form).isascii()


def test_lines_for_a_log(golden: Golden) -> None:
    golden("watch_log.txt", "".join(f"{log_line(seen)}\n" for seen in FRAMES.values()))
    assert all("\n" not in log_line(seen) for seen in FRAMES.values())


strange = ["", FAILED, "日本語" * 20, "\x1b[2Jred\r\n", "x" * 300, "e\u0301 \u202e"]
texts = st.sampled_from(strange) | st.text(max_size=8)
rates = st.sampled_from([0.0, 5e-324, 0.1, 60.0, 131.072, 1e6])


TEXTS = ("fault", "last_error", "cloud_error", "waiting_for", "restraint", "capped")


@st.composite
def any_status(draw: st.DrawFn) -> Status:
    """Any situation, with texts and figures that nobody expects."""
    status = SITUATIONS[draw(st.sampled_from(sorted(SITUATIONS)))]
    texts_of: dict[str, Any] = {name: draw(texts) for name in TEXTS}
    load = replace(status.load, read_mb_s=draw(rates), write_mb_s=draw(rates), backing_bandwidth_mb_s=draw(rates))
    cycle = status.cycle and replace(
        status.cycle, bandwidth_mb_s=draw(rates), failure=draw(texts), flush_progress=draw(st.none() | st.floats(0, 1))
    )
    return replace(status, load=load, cycle=cycle, **texts_of)


forms = st.builds(
    Format,
    columns=st.integers(1, 250),
    rows=st.integers(1, 60),
    tz=st.just(UTC),
    symbols=st.sampled_from([BLOCKS, ASCII]),
    with_device=st.booleans(),
)


@given(st.lists(any_status() | texts, max_size=4), any_status(), forms)
def test_no_frame_is_larger_than_the_terminal(events: list[Status | str], first: Status, form: Format) -> None:
    seen = Watched.first(first, 0.0, None)
    for at_s, event in enumerate(events, 1):
        seen = seen.silent(event, at_s) if isinstance(event, str) else seen.answered(event, at_s, None)
    lines = frame(seen, 20.0, form)
    assert 1 <= len(lines) <= form.rows
    assert max(width(line.text) for line in lines) <= form.columns
    assert all(line.text.isprintable() for line in lines)
    assert log_line(seen).isprintable()


def test_the_figures_of_an_agent_that_is_silent_are_shown_as_old() -> None:
    styles = {line.text.split()[0]: line.style for line in frame(FRAMES["silent"], 125.0, SIZES["80x24"]) if line.text}
    assert (styles["NO"], styles["throughput"]) == (Style.BAD, Style.QUIET)


def test_a_tall_terminal_has_larger_charts() -> None:
    full = [sum("█" in line.text and "[" not in line.text for line in frame(watched(60), 120.0, Format(80, rows)))
            for rows in (16, 24, 50)]  # fmt: skip
    assert full == sorted(set(full))
