"""`elastio report` on a ledger file, without an agent."""

from __future__ import annotations

import csv
import io
import json
import time
import zoneinfo
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from elastio.accounting.database import local_zone
from elastio.accounting.ledger import Ledger
from elastio.control.exit_codes import Exit

from .conftest import FakeAgent, Golden, Shell
from .machine import LEAST, UUID
from .test_status import COLD, CYCLE

CONFIG = f'{LEAST}[agent]\nstate_dir = "{{state}}"\n'
CYCLE_CLOSED = replace(CYCLE, opened_wall=1_789_999_900.0, closed_wall=1_790_000_000.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """One boost that was open for 100 s, and the time the agent saw its device."""
    (tmp_path / "elastio.toml").write_text(CONFIG.replace("{state}", str(tmp_path)))
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as opened:
        opened.touch_device(UUID, 50 * 10**9, 60.0, 128.0, 1_789_999_800.0)
        opened.record(CYCLE_CLOSED, 1_789_992_000.0)
        opened.touch_device(UUID, 50 * 10**9, 60.0, 128.0, 1_790_000_050.0)
    return path


def test_shows_phases_days_and_total(ledger: Path, elastio: Shell) -> None:
    result = elastio("report")
    assert result.exit_code == 0, result.output
    assert "VM total" in result.stdout
    assert "1 min 40 s" in result.stdout


def test_shows_the_credits_of_a_cold_volume_if_the_agent_runs(ledger: Path, agent: FakeAgent, elastio: Shell) -> None:
    plain, document = elastio("report").stdout, json.loads(elastio("report", "--json").stdout)
    assert "credits" not in document
    agent.statuses = [replace(agent.statuses[0], credits=COLD)]
    assert elastio("report").stdout.startswith(plain.rstrip())
    assert "12%" in elastio("report").stdout
    cold = json.loads(elastio("report", "--json").stdout)
    assert {**cold, "until": document["until"]}.keys() - document.keys() == {"credits"}
    assert (cold["credits"]["share"], cold["credits"]["flush_limit_mb_s"]) == (0.12, 7.5)


def test_json_and_csv_tell_the_same(ledger: Path, elastio: Shell) -> None:
    document = json.loads(elastio("report", "--json").stdout)
    rows = list(csv.DictReader(io.StringIO(elastio("report", "--csv").stdout)))
    assert [p["token"] for p in document["phases"]] == ["tok"]
    assert [r["name"] for r in rows if r["kind"] == "phase"] == ["tok"]
    assert float(rows[-1]["cache_agbs"]) == pytest.approx(document["vm"]["cache_agbs"])


def test_since_may_be_a_time_before_now(ledger: Path, elastio: Shell) -> None:
    hours = int((time.time() - 1_790_000_000.0) // 3600)
    for since, shown in ((f"{hours + 2}h", ["tok"]), (f"{hours - 1}h", []), ("5200w", ["tok"]), ("1m", [])):
        document = json.loads(elastio("report", "--json", "--since", since).stdout)
        assert [p["token"] for p in document["phases"]] == shown, since


def test_fails_without_a_ledger(ledger: Path, elastio: Shell, golden: Golden) -> None:
    ledger.unlink()
    result = elastio("report")
    assert result.exit_code == Exit.FAILED
    golden("no_ledger.txt", result.stderr)


def test_fails_where_the_ledger_cannot_be_read(ledger: Path, elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG.replace("{state}", str(ledger)))
    result = elastio("report")
    assert result.exit_code == Exit.FAILED
    golden("unreadable_ledger.txt", result.stderr)


def test_a_file_that_is_not_a_ledger_is_one_sentence(ledger: Path, elastio: Shell) -> None:
    for leftover in ledger.parent.glob("ledger.sqlite-*"):
        leftover.unlink()
    ledger.write_bytes(b"not a database at all" * 100)
    result = elastio("report")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (Exit.FAILED, "", 1)


def test_days_are_those_of_the_machines_time_zone(tmp_path: Path) -> None:
    (tmp_path / "localtime").symlink_to(zone_file("Europe/Berlin"))
    summer, winter = datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    zone = local_zone(tmp_path / "localtime")
    assert summer.astimezone(zone).hour - winter.astimezone(zone).hour == 1
    assert local_zone(tmp_path / "none") is UTC


def zone_file(key: str) -> Path:
    return next(Path(p) / key for p in zoneinfo.TZPATH if (Path(p) / key).exists())


def test_html_is_a_file_with_a_picture_of_the_boost(ledger: Path, elastio: Shell, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for _ in range(2):  # the second replaces the first
        result = elastio("report", "--html", str(page))
        assert (result.exit_code, result.stdout.count("\n")) == (Exit.OK, 1)
    text = page.read_text(encoding="utf-8")
    assert text.count('class="boost"') == 1
    assert text.endswith("</html>\n")
    assert 'class="boost"' not in _html(elastio, page, "--since", "1m")


def _html(elastio: Shell, page: Path, *options: str) -> str:
    elastio("report", "--html", str(page), *options)
    return page.read_text(encoding="utf-8")


def test_html_that_cannot_be_written_is_one_sentence(ledger: Path, elastio: Shell, tmp_path: Path) -> None:
    result = elastio("report", "--html", str(tmp_path / "none" / "report.html"))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (Exit.FAILED, "", 1)


def test_only_one_form_is_printed(ledger: Path, elastio: Shell, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert elastio("report", "--json", "--html", str(page)).exit_code == Exit.USAGE
    assert not page.exists()
