from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from elastio_testbed.cli import main
from elastio_testbed.evaluation import disturbance
from elastio_testbed.lower_bound import Bandwidths, least_agbs, naive_agbs
from elastio_testbed.markdown import section, sections, side_by_side
from elastio_testbed.page import page
from elastio_testbed.tables import caches, latency

from .documents import document, repetition

TWO = (repetition(1471, 1190, 1231), repetition(1480, 1200, 1245))


def test_each_boost_and_their_sum_are_compared_with_the_bound() -> None:
    table = caches(document())
    speed = Bandwidths(16.5e6, 64e6)
    bound, naive = least_agbs(0.24e9, speed), naive_agbs(0.24e9, speed)
    rows = [dict(zip(table.heads, row, strict=True)) for row in table.rows]
    assert [row["x bound"] for row in rows] == [
        f"{spent / (bound * phases):.2f}" for spent, phases in ((300, 1), (120, 1), (420, 2), (120, 1))
    ]
    assert (rows[2]["naive"], rows[2]["bound"]) == (f"{2 * naive:,.0f}", f"{2 * bound:,.0f}")
    assert rows[-1]["boost"] == "adaptive, after the first"


def test_boosts_are_named_by_their_vm_if_there_are_several() -> None:
    assert [row[0] for row in latency(document()).rows] == ["boost 1", "boost 2", "all 2 boosts"]
    assert [row[0] for row in latency(document(vms=2)).rows][:2] == ["vm0 boost 1", "vm0 boost 2"]


def test_markdown_and_page_warn_of_a_disturbed_repetition() -> None:
    found = {**document(), "disturbed": [1]}
    assert f"\n\n> {disturbance([1])}\n\n" in section(found)
    assert '<p class="warning">' in page(found)
    assert "\n> " not in section(document())
    assert '<p class="warning">' not in page(document())


def test_results_of_one_experiment_are_in_one_part() -> None:
    parts = sections([document(), document(experiment="demo"), document(*TWO)])
    assert list(parts) == ["cm1", "demo"]
    assert parts["cm1"].count("### `cm1`") == 2


def test_results_of_one_scale_on_several_hypervisors_are_side_by_side() -> None:
    on_uml = {**document(*TWO), "hypervisor": "uml"}
    table = side_by_side([document(), on_uml])
    rows = [dict(zip(table.heads, row, strict=True)) for row in table.rows]
    assert [(row["hypervisor"], row["repetitions"]) for row in rows] == [("qemu", "1"), ("uml", "2")]
    assert rows[0]["own share s"] == latency(document()).rows[-1][-1]
    assert side_by_side([document(), document(*TWO)]).rows == ()
    assert "Side by side" in sections([document(), on_uml])["cm1"]
    assert "Side by side" not in sections([document(), {**on_uml, "scale": 0.5}])["cm1"]


def test_results_that_differ_in_an_option_are_side_by_side_with_this_option_alone() -> None:
    for name, key, value in (("bursts known ahead", "ahead", "expect"), ("adopted", "adopted", "disk/ext4")):
        table = side_by_side([document(), {**document(), key: value}])
        assert [dict(zip(table.heads, row, strict=True))[name] for row in table.rows] == ["-", value]
        assert len({"bursts known ahead", "adopted"} & set(table.heads)) == 1


# --- the page ----------------------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[3] / "docs/evaluation.md"
RESULTS = sorted((PAGE.parent / "results").glob("*.json"))


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(PAGE.read_text())
    done = CliRunner().invoke(main, ["tables", *map(str, RESULTS), "--into", str(copy)])
    assert done.exit_code == 0, done.output
    assert copy.read_text() == PAGE.read_text()


def seconds_of_own_share(text: str) -> set[str]:
    """The figures in seconds in every paragraph or item about an own share."""
    parts = re.split(r"\n\n|\n- ", text)
    spoken = [part for part in parts if "own share" in part]
    lists = [found for part in spoken for found in re.findall(r"((?:\d+\.\d+(?:,| and| to)? )+)s\b", part)]
    return {figure for each in lists for figure in re.findall(r"\d+\.\d+", each)}


def test_every_own_share_in_the_prose_is_from_a_table() -> None:
    tables = [latency(json.loads(path.read_text())) for path in RESULTS]
    measured = {figure for table in tables for row in table.rows for figure in re.findall(r"\d+\.\d+", row[-1])}
    prose = re.sub(r"<!-- results: .*?<!-- end: \w+ -->", "", PAGE.read_text(), flags=re.DOTALL)
    assert "own share" in prose
    assert seconds_of_own_share(prose) <= measured
    assert seconds_of_own_share("- Four boosts: own share 0.67, 0.43 and 0.58 s.") == {"0.67", "0.43", "0.58"}
