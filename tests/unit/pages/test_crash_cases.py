"""The page about safety says how many crash cases there are."""

from __future__ import annotations

import json
from pathlib import Path

from tests.crash.campaign import POINTS, cases

PAGE = Path(__file__).parents[3] / "docs/explanation/safety.md"


def test_the_page_counts_the_crash_cases_that_are_played() -> None:
    points: dict[str, int] = json.loads(POINTS.read_text())
    played = sum(1 for scenario, number in points.items() for _ in cases(scenario, number))
    page = PAGE.read_text()
    assert f" of {len(points)} scenarios, {sum(points.values()):,} points, " in page
    assert f" runs of {played:,} cases, " in page
