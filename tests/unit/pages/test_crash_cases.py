"""The page about safety says how many crash cases there are."""

from __future__ import annotations

import json

from tests.crash.campaign import POINTS, cases

from .blocks import ROOT


def test_the_page_counts_the_crash_cases_that_are_played() -> None:
    points: dict[str, int] = json.loads(POINTS.read_text())
    played = sum(1 for scenario, number in points.items() for _ in cases(scenario, number))
    page = (ROOT / "docs/explanation/safety.md").read_text()
    assert f" of {len(points)} scenarios, {sum(points.values()):,} points, " in page
    assert f" runs of {played:,} cases, " in page
