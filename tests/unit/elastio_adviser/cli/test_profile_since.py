"""`elastio profile --since` on a ledger file: the account, the deciles and the curve of each cgroup and of all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastio.accounting.burst_accounts import AccountRow
from elastio.accounting.history_store import write_accounts
from elastio.accounting.ledger import Ledger
from elastio.control.exit_codes import Exit
from elastio.strategy.account import AtCap, Totals
from tests.unit.elastio.strategy.wait_runs import Stretch, moments, totals
from tests.unit.elastio_cli.conftest import Golden, Shell
from tests.unit.elastio_cli.machine import UUID
from tests.unit.elastio_cli.test_report import CONFIG

WALL = 1_790_000_000.0
DB, CRON = "system.slice/db.service", "system.slice/cron.service"
STORAGE = totals(moments([Stretch(6, waiting=1, mb_s=99), Stretch(4, running=1)]), 100.0)
LATENCY = totals(moments([Stretch(5, waiting=1, mb_s=20), Stretch(5)]), 100.0)


def put(directory: Path, *rows: tuple[float, str, Totals, str | None]) -> None:
    (directory / "elastio.toml").write_text(CONFIG.replace("{state}", str(directory)))
    with Ledger(directory / "ledger.sqlite") as ledger:
        known = [AccountRow(UUID, begun, name, begun + 10, token, True, sums) for begun, name, sums, token in rows]
        write_accounts(ledger.file, known, {}, 0.0)


@pytest.fixture
def bursts(tmp_path: Path) -> None:
    """Two bursts, the second with a boost."""
    put(
        tmp_path,
        (WALL, DB, STORAGE, None),
        (WALL, CRON, LATENCY, None),
        (WALL + 3600, DB, STORAGE.plus(STORAGE), "token"),
    )


@pytest.mark.usefixtures("bursts")
def test_the_whole_answer(elastio: Shell, golden: Golden) -> None:
    golden("profile_since.txt", elastio("profile", "--since", "2020-01-01").stdout)


@pytest.mark.usefixtures("bursts")
def test_the_document_has_each_cgroup_and_all(elastio: Shell) -> None:
    document = json.loads(elastio("profile", "--since", "2020-01-01", "--json").stdout)
    assert (document["bursts"], document["boosts"]) == (2, 1)
    assert [(each["cgroup"], each["bursts"], each["mostly"]) for each in document["groups"]] == [
        (DB, 2, "bandwidth"),
        (CRON, 1, "latency"),
    ]
    whole = document["all"]
    assert sum(whole["wait_classes_s"]) == pytest.approx(whole["seconds"])
    assert sum(value for name, value in whole["account"].items() if name in SIX) == pytest.approx(whole["seconds"])
    alone = json.loads(elastio("profile", "--since", "2020-01-01", "--json", "--cgroup", f"/{DB}/").stdout)
    assert alone["all"] | {"cgroup": DB} == alone["groups"][0]
    assert alone["groups"] == document["groups"][:1]
    assert alone["groups"][0]["inflection_mb_s"]["likely"] == pytest.approx(
        0.9 * 99 * STORAGE.likely.seconds / (0.1 * (STORAGE.seconds - STORAGE.likely.seconds)), rel=0.05
    )


SIX = ("computing_s", "queue_s", "bandwidth_s", "latency_s", "elsewhere_s", "unknown_s")


@pytest.mark.usefixtures("bursts")
def test_a_higher_stop_gain_moves_the_inflection(elastio: Shell) -> None:
    def found(*words: str) -> Any:
        return json.loads(elastio("profile", "--since", "2020-01-01", "--json", *words).stdout)["all"]

    likely = found("--stop-gain", "0.2")["inflection_mb_s"]["likely"]
    assert likely < found()["inflection_mb_s"]["likely"]
    lines = elastio("profile", "--since", "2020-01-01", "--stop-gain", "0.2").stdout.splitlines()
    (row,) = [line for line in lines if line.startswith("all ")]
    assert row.split()[-1] == f"{likely:.0f}"


def test_for_a_cgroup_at_a_limit_of_its_own_no_faster_cache_is_advised(elastio: Shell, tmp_path: Path) -> None:
    held = replace(STORAGE, limited=STORAGE.likely)
    nearly = replace(held, limited=AtCap(held.likely.seconds - 0.05, held.likely.moved_bytes - 5e6))
    put(tmp_path, (WALL, DB, held, None), (WALL, CRON, STORAGE, None), (WALL, "nearly", nearly, None))
    document = json.loads(elastio("profile", "--since", "2020-01-01", "--json").stdout)
    found = {each["cgroup"]: each for each in document["groups"]}
    assert found[DB]["account"] == found[CRON]["account"]
    whys = [found[name]["next_cache"]["why"] for name in (DB, CRON, "nearly")]
    assert whys == ["not_bandwidth", "farthest", "not_bandwidth"]
    assert [DB in note for note in document["notes"]].count(True) == 1
    assert not any(CRON in note for note in document["notes"])
    text = elastio("profile", "--since", "2020-01-01", "--cgroup", DB).stdout
    assert "Inflection: none, because all that waited" in text
    assert "Next cache: none; a limit of the cgroup" in text


@pytest.mark.usefixtures("bursts")
def test_a_period_without_a_burst_says_so(elastio: Shell) -> None:
    result = elastio("profile", "--since", "2035-01-01")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1
    assert json.loads(elastio("profile", "--since", "2035-01-01", "--json").stdout)["groups"] == []


@pytest.mark.parametrize(
    "words",
    [("--", "true"), ("--for", "1m"), ("--bandwidth", "5"), ("--processes",), ("--png", "x"), ("--device", "x")],
)
@pytest.mark.usefixtures("bursts")
def test_what_is_for_a_measurement_is_refused(elastio: Shell, words: tuple[str, ...]) -> None:
    assert elastio("profile", "--since", "7d", *words).exit_code == Exit.USAGE


def test_without_a_ledger_it_is_an_error(elastio: Shell, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG.replace("{state}", str(tmp_path)))
    assert elastio("profile", "--since", "7d").exit_code == Exit.FAILED


@pytest.mark.usefixtures("bursts")
def test_the_report_has_who_waited_longest(elastio: Shell, tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for at in range(10):
            ledger.touch_device(UUID, 100 << 30, 60.0, 128.0, WALL + 60 * at)
    table = elastio("report").stdout.split("\n\n")[-1].splitlines()
    assert [line.split()[0] for line in table] == ["cgroup", DB, CRON, "all"]
    waits = json.loads(elastio("report", "--json").stdout)["waits"]
    assert {name: each["bursts"] for name, each in waits.items()} == {DB: 2, CRON: 1}
    assert waits[DB]["bandwidth"] == pytest.approx(0.6 * waits[DB]["seconds"], rel=0.02)
    page = tmp_path / "report.html"
    assert elastio("report", "--html", str(page)).exit_code == 0
    assert DB in page.read_text()
    assert elastio("report", "--csv").exit_code == 0


def test_an_account_of_few_readings_is_said_to_be_rough(elastio: Shell, tmp_path: Path) -> None:
    short = totals(moments([Stretch(1, waiting=1, mb_s=99)]), 100.0)
    put(tmp_path, (WALL, DB, STORAGE, None), *((WALL, f"few{number}", short, None) for number in range(7)))
    notes = json.loads(elastio("profile", "--since", "2020-01-01", "--json").stdout)["notes"]
    (rough,) = [note for note in notes if "few0" in note]
    assert "few4" in rough
    assert "few5" not in rough
    assert DB not in rough
