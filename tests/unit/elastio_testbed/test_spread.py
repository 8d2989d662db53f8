from __future__ import annotations

import pytest

from elastio_testbed.spread import nearest_to_median, spread_of


def test_mean_median_and_extremes_of_repetitions() -> None:
    found = spread_of([1.0, 2.0, 9.0])
    assert found is not None
    assert (found.n, found.mean, found.median, found.min, found.max, found.spread) == (3, 4.0, 2.0, 1.0, 9.0, 8.0)


def test_repetitions_without_the_figure_do_not_count() -> None:
    found = spread_of([None, 3.0, None])
    assert found is not None
    assert (found.n, found.median, found.spread) == (1, 3.0, 0.0)
    assert spread_of([None, None]) is None


@pytest.mark.parametrize(
    ("values", "place"), [([1.0, 9.0, 2.0], 2), ([None, 4.0], 1), ([], 0), ([None], 0), ([3.0, 5.0], 0)]
)
def test_the_repetition_that_stands_for_all_is_the_one_nearest_to_the_median(
    values: list[float | None], place: int
) -> None:
    assert nearest_to_median(values) == place
