from __future__ import annotations

import pytest

from elastio_testbed.guest import bonnie

LATENCIES = "," * 18 + "8043us,12060us,,8035us,31us,,,,,,"
LINE = "1.98,2.00a,vm0,1,1795234818,120M,,500,5,,,61284,12,30122,9,,,98765,14,412.5,3" + LATENCIES
TOO_SHORT = "1.98,2.00a,vm0,1,1795234818,120M,,500,5,,,61284,12,30122,9,,,+++++,+++,+++++,+++" + LATENCIES


def test_figures_are_read_from_the_csv_in_mb_per_second() -> None:
    assert bonnie.figures_in(LINE + "\n") == {
        "write_mb_s": pytest.approx(62.755, abs=0.001),
        "rewrite_mb_s": pytest.approx(30.845, abs=0.001),
        "read_mb_s": pytest.approx(101.135, abs=0.001),
        "seeks_per_s": 412.5,
    }


def test_a_test_that_is_too_short_has_no_figure() -> None:
    assert set(bonnie.figures_in(TOO_SHORT)) == {"write_mb_s", "rewrite_mb_s"}


@pytest.mark.parametrize("text", ["", "Can't open file ./Bonnie.1\n", "1.97" + LINE[4:], "1.98,2.00a,vm0\n"])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(bonnie.BonnieError):
        bonnie.figures_in(text)


def test_bonnie_runs_within_its_memory_and_on_its_file() -> None:
    spec = {"directory": "/data", "memory_mib": 62, "chunk_kib": 32, "seeks": 245}
    argv = bonnie.command(spec, 124)
    assert "--property=MemoryMax=62M" in argv
    assert argv[argv.index("-s") + 1] == "124:32k:245"
    assert argv[argv.index("-d") + 1] == "/data"
