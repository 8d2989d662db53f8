"""promtool, which `make setup` unpacks from Debian's package `prometheus`, and what is given to it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MONITORING = Path(__file__).parents[4] / "monitoring"
RULES, RULE_TESTS, DASHBOARD = (MONITORING / n for n in ("alerts.yml", "alerts_test.yml", "dashboard.json"))

LINE = re.compile(r"^(elastio_\w+)\{(.*)\} (\S+)$")
STEP_S = 30


def promtool(*arguments: str, stdin: str = "") -> str:
    """What it says. Fails the test if it is not content."""
    beside = Path(sys.executable).with_name("promtool")
    program = str(beside) if beside.exists() else shutil.which("promtool")
    assert program is not None, "promtool is missing: run `make setup`"
    done = subprocess.run([program, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def series_in(text: str) -> dict[str, float]:
    """The value of each series of an exposition, by its name and labels as Prometheus stores them for the VM `vm`."""
    lines = [LINE.match(line) for line in text.splitlines() if not line.startswith("#")]
    assert None not in lines, text
    return {f'{m[1]}{{instance="vm",{m[2]}}}': float(m[3]) for m in lines if m is not None}


def input_series(texts: Sequence[str], wall: float) -> list[dict[str, str]]:
    """The expositions, STEP_S apart, as `input_series` of a rules test, whose clock is 0 at `wall`."""
    seen = [series_in(text) for text in texts]
    names = sorted({name for values in seen for name in values})
    return [{"series": name, "values": " ".join(_values(name, seen, wall))} for name in names]


def _values(name: str, seen: Sequence[Mapping[str, float]], wall: float) -> list[str]:
    """A series that a scrape lacks is stale at once, as on a real server."""
    is_time = name.partition("{")[0].endswith(("_timestamp_seconds", "_start_time_seconds"))
    values: list[str] = []
    for index, scrape in enumerate(seen):
        if name in scrape:
            values.append(repr(scrape[name] - wall if is_time else scrape[name]))
        else:
            values.append("stale" if index and name in seen[index - 1] else "_")
    return values


def assert_fired(texts: Sequence[str], wall: float, alerts: Sequence[str], folder: Path) -> None:
    """Over these expositions exactly these alerts fire, at any time and at the end."""
    end_s = (len(texts) - 1) * STEP_S
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in alerts]
    fired = 'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1d]))'
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [
            {
                "interval": f"{STEP_S}s",
                "input_series": input_series(texts, wall),
                "promql_expr_test": [
                    {"expr": expression, "eval_time": f"{end_s}s", "exp_samples": samples}
                    for expression in (fired, firing)
                ],
            }
        ],
    }
    run_rules_test(test, folder)


def run_rules_test(test: Mapping[str, Any], folder: Path) -> None:
    """JSON is YAML."""
    path = folder / "generated_test.yml"
    path.write_text(json.dumps(test))
    promtool("test", "rules", str(path))
