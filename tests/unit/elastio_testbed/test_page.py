from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from elastio_testbed.experiment import Setup
from elastio_testbed.page import page
from elastio_testbed.picture import draw
from elastio_testbed.series import from_json
from elastio_testbed.svg import ticks
from elastio_testbed.tables import all_tables

from .documents import document, repetition

VOID = {"meta"}


class Reader(HTMLParser):
    """Collects text and every address that a browser would load; fails where elements do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in {"src", "href", "data", "srcset"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in {"src", "href", "data", "srcset"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_loads_nothing_from_anywhere() -> None:
    text = page(document(repetition(), repetition(adaptive_s=1240)))
    assert read(text).loaded == []
    assert "<script" not in text
    assert re.search(r"@import|url\(", text) is None


def test_the_page_has_every_table_and_a_panel_for_every_set_up() -> None:
    found = document()
    words = read(page(found)).words
    for title in (*(table.title for table in all_tables(found)), *found["setups"], "Every repetition", "Conditions"):
        assert title in words


def test_what_comes_from_a_machine_is_escaped() -> None:
    text = page(document())
    assert "A processor &lt;at&gt; 3 GHz" in text
    assert "<at>" not in text


def test_an_experiment_without_a_boost_has_a_page_too() -> None:
    only = repetition()
    static = type(only)(only.setups[:2])
    words = read(page(document(static))).words
    assert "Completion" in words
    assert "Latency of a boost" not in words


def test_the_same_pictures_can_be_drawn_as_a_file(tmp_path: Path) -> None:
    found = document(setups=(Setup.STATIC_SLOW, Setup.STATIC_FAST, Setup.ADAPTIVE))
    path = tmp_path / "made" / "picture.png"
    draw(found, [from_json(row) for row in found["picture"]], path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("most", "wanted", "expected"),
    [
        (10.0, 5, [0, 2, 4, 6, 8, 10]),
        (128.0, 3, [0, 50, 100, 150]),
        (0.6, 3, [0, 0.2, 0.4, 0.6]),
        (0.0, 3, [0, 1]),
    ],
)
def test_ticks_are_round_and_reach_the_most(most: float, wanted: int, expected: list[float]) -> None:
    assert ticks(most, wanted) == pytest.approx(expected)
