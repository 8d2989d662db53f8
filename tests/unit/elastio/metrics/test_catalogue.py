"""The table of metrics, and what was written from it by hand: the page, the rules, the dashboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastio.core.state import FaultKind, Phase
from elastio.metrics.catalogue import BY_NAME, DEVICE, METRICS, MetricKind

from . import metrics_page
from .metrics_page import LABELS, PAGE, page
from .promtool import DASHBOARD, RULE_TESTS, RULES, promtool

NAMES = re.compile(r"\belastio_\w+")
SELECTOR = re.compile(r"\b(elastio_\w+)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*=~?\s*\"([^\"]*)\"")
# Labels of the scrape.
SCRAPED = {"instance", "job"}


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == page(), f"write it again: python {metrics_page.__file__}"


def test_every_label_has_its_values_on_the_page() -> None:
    assert set(LABELS) == {label for metric in METRICS for label in metric.labels}


def test_names_are_unique_and_only_counters_end_in_total() -> None:
    assert len(BY_NAME) == len(METRICS) >= 25
    assert {m.name for m in METRICS if m.name.endswith("_total")} == {
        m.name for m in METRICS if m.kind is MetricKind.COUNTER
    }
    assert all(m.help.endswith(".") and DEVICE not in m.labels for m in METRICS)


@pytest.mark.parametrize("file", [RULES, RULE_TESTS, DASHBOARD], ids=lambda path: path.name)
def test_rules_and_dashboard_use_only_metrics_and_labels_that_exist(file: Path) -> None:
    text = file.read_text().replace('\\"', '"')
    assert set(NAMES.findall(text)) - set(BY_NAME) == set()
    assert "elastio_up" in text
    for name, selector in SELECTOR.findall(text):
        for label, value in MATCHER.findall(selector):
            assert label in {DEVICE, *SCRAPED, *BY_NAME[name].labels}, f"{name}{{{selector}}}"
            if label in LABELS and not any("`" in text for text in LABELS[label]):
                assert set(value.split("|")) <= set(LABELS[label]), f"{name}{{{selector}}}"


def test_the_values_that_rules_may_name_are_those_of_the_code() -> None:
    assert "faulted" in {str(phase) for phase in Phase}
    assert set(FaultKind) <= set(LABELS["kind"])


def expressions(panels: list[dict[str, Any]]) -> Iterator[str]:
    for panel in panels:
        assert panel["title"], panel["id"]
        assert panel["description"], panel["title"]
        yield from (target["expr"] for target in panel["targets"])


def test_panels_stand_beside_each_other() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (x, y)
        for p in panels
        for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
        for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({p["id"] for p in panels}) == len(panels)


@pytest.mark.runs_programs
def test_every_query_of_the_dashboard_can_be_read_by_prometheus(tmp_path: Path) -> None:
    found = list(expressions(json.loads(DASHBOARD.read_text())["panels"]))
    assert len(found) >= 20
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$\w+", ".*", expression)}
        for number, expression in enumerate(found)
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(tmp_path / "rules.yml"))
