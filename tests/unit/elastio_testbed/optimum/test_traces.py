"""The loads that decisions are compared on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from elastio.units import GB
from elastio_adviser.rates import TraceError
from elastio_testbed.optimum.traces import loads, loads_in

TRACE = "seconds,read_mb_s,write_mb_s\n0,0,0\n60,0,128\n90,0,0\n200,0,0\n"


def test_there_are_forty_of_seven_kinds_and_they_are_always_the_same() -> None:
    found = loads()
    assert len({load.name for load in found}) == 40
    assert set(Counter(load.kind for load in found)) == {
        "published",
        "recorded",
        "periodic",
        "random",
        "diurnal",
        "checkpoints",
        "hostile",
    }
    assert found == loads()


def test_the_published_ones_move_what_was_published_in_the_published_time() -> None:
    cm1 = next(load for load in loads() if load.name == "published-cm1")
    assert sum(d.moved_bytes for d in cm1.wanted) == 17 * GB
    assert cm1.own_s == pytest.approx(1100 + 30)


def test_the_recorded_ones_are_the_guests_runs_at_full_scale() -> None:
    recorded = {load.name: load for load in loads() if load.kind == "recorded"}
    moved = {name: sum(d.moved_bytes for d in load.wanted) / GB for name, load in recorded.items()}
    assert moved["recorded-cm1"] == pytest.approx(17, rel=0.02)
    assert moved["recorded-lammps"] == pytest.approx(13, rel=0.02)
    bursts = [sum(1 for d in load.wanted if d.seconds == 0) for load in recorded.values()]
    assert min(bursts) >= 4


def test_a_folder_of_traces_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).write_text(TRACE)
    first, second = loads_in(tmp_path)
    assert (first.name, second.name) == ("a", "b")
    assert first.wanted[1].seconds == 30
    (saturated, _) = loads_in(tmp_path, 128.0)
    assert saturated.wanted[1].seconds == 0, "the device was the limit: the application wanted more"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({}, "folder.empty"),
        ({"a.csv": TRACE + "99999999,0,0\n"}, "duration"),
        ({"a.csv": TRACE.replace("128", "9e9")}, "duration"),
        ({"a.csv": "seconds,read_mb_s,write_mb_s\n0,x,0\n"}, "number"),
    ],
)
def test_a_folder_that_cannot_be_compared_names_what_is_wrong(tmp_path: Path, files: dict[str, str], code: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(TraceError) as error:
        loads_in(tmp_path)
    assert error.value.code == code
