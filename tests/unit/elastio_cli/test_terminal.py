"""What is written to a terminal: each line in its place, colours only where they are wanted."""

from __future__ import annotations

import io

import pytest

from elastio_cli.charts import ASCII, BLOCKS, Line, Style
from elastio_cli.terminal import Screen, drawing, is_live, size, symbols_of


class Tty(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


def test_a_line_is_cleared_behind_its_text_but_not_in_its_last_cell() -> None:
    drawn = drawing([Line("abc"), Line("abcdef"), Line("日本語")], 6, is_coloured=False)
    assert drawn == "\x1b[1;1Habc\x1b[K\x1b[2;1Habcdef\x1b[3;1H日本語"


def test_what_an_earlier_longer_frame_left_is_cleared() -> None:
    assert drawing([Line("abc")], 6, is_coloured=False).endswith("\x1b[J")


@pytest.mark.parametrize(("variable", "is_coloured"), [("1", False), ("", True)])
def test_colours_are_left_out_with_no_color(variable: str, is_coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", variable)  # no-color.org: an empty one does not count
    out = Tty()
    Screen(out).draw([Line("faulted", Style.BAD), Line("plain")], 80)
    assert ("\x1b[1;31m" in out.getvalue()) is is_coloured
    assert out.getvalue().count("m") == 2 * is_coloured


@pytest.mark.parametrize(
    ("out", "term", "is_drawn"), [(Tty(), "xterm", True), (Tty(), "dumb", False), (io.StringIO(), "xterm", False)]
)
def test_only_a_terminal_that_moves_its_cursor_is_drawn_on(
    out: io.StringIO, term: str, is_drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    assert is_live(out) is is_drawn


def test_block_characters_need_an_encoding_that_has_them() -> None:
    assert symbols_of(io.TextIOWrapper(io.BytesIO(), "utf-8")) is BLOCKS
    assert symbols_of(io.TextIOWrapper(io.BytesIO(), "ascii")) is ASCII
    assert symbols_of(io.TextIOWrapper(io.BytesIO(), "latin-1")) is ASCII


def test_a_terminal_of_unknown_size_has_80_columns() -> None:
    assert size(Tty()) == (80, 24)
