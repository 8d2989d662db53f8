from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.evaluation import to_text
from elastio_testbed.experiment import Setup
from elastio_testbed.files import shown_setups
from elastio_testbed.result import Result

from .documents import document, evaluation, repetition, setup_result

GOLDEN = Path(__file__).parents[2] / "golden"
# A disturbance of a whole repetition does not change the ratios within it.
CALM, DISTURBED = repetition(1200, 1000, 1100), repetition(2400, 2000, 2200)


def test_ratios_are_computed_within_a_repetition_before_their_median() -> None:
    ratio = evaluation(CALM, DISTURBED, CALM).ratio(Setup.ADAPTIVE, "overhead_vs_fast_pct")
    assert ratio is not None
    assert ratio.median == ratio.max == pytest.approx(10.0)
    assert ratio.n == 3


def test_the_document_has_every_repetition_and_shows_the_middle_one() -> None:
    found = document(repetition(adaptive_s=1200), repetition(adaptive_s=1210), repetition(adaptive_s=1300))
    assert [r["setups"]["adaptive"]["completion_s"] for r in found["repetitions"]] == [1200, 1210, 1300]
    assert found["shown"] == 1
    assert shown_setups(found)["adaptive"]["completion_s"] == 1210
    assert found["overhead_vs_fast_pct"] == found["repetitions"][1]["overhead_vs_fast_pct"]


def test_the_document_states_the_conditions() -> None:
    found = document()
    assert found["side_by_side"] is True
    assert (found["hypervisor"], found["accelerator"]) == ("qemu", "tcg")
    assert found["kernel"] == "6.12.0-test"
    assert found["summary"]["setups"]["adaptive"]["cache_agbs_ratio"]["median"] == 2.1


@pytest.mark.parametrize(
    ("flaw", "shown"), [({"volumes_left": 2}, ["ok", "2"]), ({"checksums_ok": False}, ["WRONG", "0"])]
)
def test_the_text_shows_what_was_wrong_in_any_repetition(flaw: dict[str, Any], shown: list[str]) -> None:
    sound, flawed = (Result((setup_result(Setup.ADAPTIVE, 100, 10.0, **changes),)) for changes in ({}, flaw))
    assert evaluation(sound).is_sound
    found = evaluation(sound, flawed)
    assert not found.is_sound
    row = next(line for line in to_text(found).splitlines() if line.startswith("adaptive"))
    assert row.split()[-2:] == shown


def test_a_repetition_in_which_the_machine_limited_the_slow_volume_is_reported() -> None:
    held_back = Result((setup_result(Setup.STATIC_SLOW, 100, 10.0, app_write_mb_s=0.8 * 16.5),))
    kept_up = Result((setup_result(Setup.STATIC_SLOW, 100, 10.0, app_write_mb_s=0.97 * 16.5),))
    assert evaluation(kept_up, held_back).disturbed == (2,)
    assert evaluation(kept_up).disturbed == ()
    assert document(kept_up, held_back)["disturbed"] == [2]


def test_the_text_compares_each_set_up_with_the_static_ones() -> None:
    slow = Result(tuple(replace(s, app_write_mb_s=0.8 * 16.5) for s in CALM.setups))
    assert to_text(evaluation(CALM, slow)) + "\n" == (GOLDEN / "experiment.txt").read_text()
