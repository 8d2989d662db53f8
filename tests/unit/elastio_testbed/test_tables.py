from __future__ import annotations

import pytest

from elastio_testbed.markdown import MarkError, rewritten, section, sections
from elastio_testbed.page import page
from elastio_testbed.tables import all_tables, caches, completion, cost, latency, model, spread

from .documents import document, repetition

TWO = (repetition(1471, 1190, 1231), repetition(1480, 1200, 1245))


def test_measured_figures_stand_beside_the_published_ones() -> None:
    rows = {row[0]: row for row in completion(document(*TWO)).rows}
    assert rows["adaptive"] == (
        "adaptive",
        "1,238.0 (1,231.0 to 1,245.0)",
        "+3.6 % (+3.5 to +3.8)",
        "1,231",
        "+3.3 %",
    )
    assert rows["static-fast"][2] == "-"


def test_nothing_is_published_of_an_experiment_of_our_own() -> None:
    rows = completion(document(experiment="demo")).rows
    assert all(row[3:] == ("-", "-") for row in rows)


def test_cost_is_compared_with_both_static_set_ups() -> None:
    rows = {row[0]: row for row in cost(document()).rows}
    assert rows["adaptive"][3:] == ("-65.0 %", "about -65 %", "-7.0 %", "about -7 %")
    assert rows["static-slow"][5] == rows["static-fast"][3] == "-"


def test_each_phase_is_held_against_its_bound_and_all_together() -> None:
    rows = caches(document()).rows
    assert [row[-1] for row in rows] == ["3.00", "1.20", "2.10", "1.20"]
    assert rows[-1][0] == "adaptive, after the first"


def test_phases_are_named_by_their_vm_where_there_are_several() -> None:
    assert [row[0] for row in latency(document()).rows] == ["phase 1", "phase 2"]
    assert [row[0] for row in latency(document(vms=2)).rows] == ["vm0 phase 1", "vm0 phase 2"]


def test_the_own_share_of_a_boost_is_what_the_cloud_did_not_take() -> None:
    table = latency(document())
    row = dict(zip(table.heads, table.rows[0], strict=True))
    assert (row["in all s"], row["the cloud's s"], row["own s"]) == ("1.50", "0.60", "0.90")


def test_a_set_up_without_a_model_is_not_compared_with_the_simulator() -> None:
    assert [row[0] for row in model(document()).rows] == ["adaptive"]


def test_every_row_of_every_table_has_a_cell_for_every_head() -> None:
    for table in all_tables(document(*TWO)):
        assert {len(row) for row in table.rows} == {len(table.heads)}, table.title


def test_a_range_is_shown_only_where_repetitions_differ() -> None:
    assert spread({"median": 2.0, "min": 2.0, "max": 2.0}) == "2.0"
    assert spread({"median": 2.0, "min": 1.0, "max": 3.0}) == "2.0 (1.0 to 3.0)"
    assert spread(None) == "-"


def test_markdown_has_every_table_with_its_note() -> None:
    found = document(*TWO)
    text = section(found)
    for table in all_tables(found):
        assert f"#### {table.title}\n" in text
        assert table.note in text
    assert "Linux" not in text
    assert "guest kernel 6.12.0-test" in text


def test_markdown_and_page_warn_of_a_disturbed_repetition() -> None:
    found = {**document(), "disturbed": [1]}
    assert "> Disturbed: repetition 1." in section(found)
    assert "<p class='warning'" in page(found)
    assert "Disturbed" not in section(document())


def test_results_of_one_experiment_share_a_part() -> None:
    parts = sections([document(), document(experiment="demo"), document(*TWO)])
    assert list(parts) == ["cm1", "demo"]
    assert parts["cm1"].count("### `cm1`") == 2


def test_only_the_marked_part_of_a_page_is_rewritten() -> None:
    page = "# Title\n<!-- results: cm1 -->\nold\n<!-- end: cm1 -->\nkept\n"
    once = rewritten(page, {"cm1": "new"})
    assert once == "# Title\n<!-- results: cm1 -->\nnew\n<!-- end: cm1 -->\nkept\n"
    assert rewritten(once, {"cm1": "new"}) == once


@pytest.mark.parametrize("page", ["no marks", "<!-- results: cm1 --> no end", "<!-- end: cm1 --><!-- results: cm1 -->"])
def test_a_page_without_the_marks_is_refused(page: str) -> None:
    with pytest.raises(MarkError, match="results: cm1"):
        rewritten(page, {"cm1": "new"})
