"""The text format: heads, escapes, numbers, and what the table forbids."""

from __future__ import annotations

import pytest

from elastio.metrics.catalogue import Value, render


def test_each_metric_has_its_head_once_in_the_order_of_the_table() -> None:
    values = [Value("elastio_phase", 1, ("idle",)), Value("elastio_up", 1), Value("elastio_phase", 0, ("faulted",))]
    lines = render([("u", values)]).splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["#", "HELP", "elastio_up"],
        ["#", "TYPE", "elastio_up"],
        ['elastio_up{device="u"}', "1"],
        ["#", "HELP", "elastio_phase"],
        ["#", "TYPE", "elastio_phase"],
        ['elastio_phase{device="u",phase="idle"}', "1"],
        ['elastio_phase{device="u",phase="faulted"}', "0"],
    ]
    assert lines[1] == "# TYPE elastio_up gauge"


def test_a_label_may_hold_any_text() -> None:
    text = render([("u", [Value("elastio_build_info", 1, ('a"b\\c\nd',))])])
    assert r'version="a\"b\\c\nd"' in text
    assert text.count("\n") == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "1"), (0.0, "0"), (1_790_000_000.25, "1790000000.25"), (2**50, "1125899906842624"), (0.1, "0.1")],
)
def test_numbers_keep_all_their_digits(value: float, text: str) -> None:
    assert render([("u", [Value("elastio_up", value)])]).splitlines()[-1].split()[-1] == text


def test_a_metric_that_is_not_in_the_table_is_a_bug() -> None:
    with pytest.raises(KeyError):
        render([("u", [Value("elastio_nothing", 1)])])


@pytest.mark.parametrize("labels", [(), ("idle", "more")])
def test_labels_that_are_not_the_metrics_own_are_a_bug(labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="zip"):
        render([("u", [Value("elastio_phase", 1, labels)])])
