"""Text that fits a terminal, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio_cli.charts import ASCII, BLOCKS, bar, chart, clean, clip, width, wrap


@given(st.text(), st.integers(0, 40))
def test_a_text_never_takes_more_columns_than_there_are(text: str, columns: int) -> None:
    assert width(clip(clean(text), columns, BLOCKS)) <= columns


@given(st.text(), st.integers(1, 40), st.integers(1, 4))
def test_a_wrapped_text_fits_its_box(text: str, columns: int, most: int) -> None:
    lines = wrap(clean(text), columns, most, ASCII)
    assert 1 <= len(lines) <= most
    assert all(width(line) <= columns for line in lines)


def test_a_text_that_fits_is_whole() -> None:
    text = "the quota of volume storage is reached: ask for more"
    assert clip(text, len(text), BLOCKS) == text
    assert " ".join(wrap(text, 20, 9, BLOCKS)) == text
    assert wrap(text, 20, 2, BLOCKS)[1].endswith("…")


@pytest.mark.parametrize("text", ["\x1b[2J", "a\x00b", "a\x9b31m", "a\u202eb", "\x7f"])
def test_what_a_terminal_would_interpret_is_replaced(text: str) -> None:
    assert clean(text).isprintable()


def test_wide_characters_take_two_columns() -> None:
    assert (width("日本"), width("e\u0301"), clip("日本語", 5, ASCII)) == (4, 1, "日本~")


@pytest.mark.parametrize(
    ("share", "drawn"), [(0.0, "[----]"), (0.01, "[#---]"), (0.5, "[##--]"), (1.0, "[####]"), (2.5, "[####]")]
)
def test_a_bar_is_full_from_the_whole_on_and_shows_the_least_share(share: float, drawn: str) -> None:
    assert bar(share, 6, ASCII) == drawn


def test_a_chart_has_a_column_for_each_value() -> None:
    assert chart([0.0, 0.01, 5.0, 10.0, 99.0, None], 10.0, 2, BLOCKS) == ["   ██ ", " ▁███ "]
    assert chart([10.0, None], 10.0, 1, ASCII) == ["# "]
    assert chart([1.0, 2.0], 0.0, 2, BLOCKS) == ["  ", "  "]
