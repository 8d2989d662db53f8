from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.guest import lammps, reporting

# Prints what it is told to print, as LAMMPS does, and a line for every other command.
ECHO = (
    r'while read -r word text; do [ "$word" = print ] && echo "$text" | tr -d \" || echo "did $word"; '
    r'[ "$word" = fail ] && exit 1; done; true'
)


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lammps, "COMMAND", ("sh", "-c", ECHO))


def spec(directory: Path) -> dict[str, Any]:
    files = {"positions": "id type x y z"}
    return {"directory": str(directory), "restarts": 2, "checkpoints": [{**files, "scaled": "id type xs ys zs"}, files]}


def test_a_checkpoint_is_its_restart_files_and_its_dump_files(tmp_path: Path) -> None:
    commands, files = lammps.checkpoint_commands(spec(tmp_path), 0)
    assert files == [f"{tmp_path}/0.{rest}" for rest in ("0.restart", "1.restart", "positions.bin", "scaled.bin")]
    assert commands.splitlines() == [
        f"write_restart {tmp_path}/0.0.restart",
        f"write_restart {tmp_path}/0.1.restart",
        f"write_dump all custom {tmp_path}/0.positions.bin id type x y z",
        f"write_dump all custom {tmp_path}/0.scaled.bin id type xs ys zs",
    ]
    assert f"{tmp_path}/1.scaled.bin" not in lammps.checkpoint_commands(spec(tmp_path), 1)[1]


def test_the_last_energy_printed_counts() -> None:
    output = ["energy-and-atoms -6.77 500", "Loop time of 4.4", "energy-and-atoms -4.7593443097647003 500", ""]
    assert lammps.energy_in(output) == (-4.7593443097647003, 500)


@pytest.mark.runs_programs
def test_each_answer_has_the_output_of_its_own_commands(echo: None) -> None:
    with lammps.Lammps(30) as process:
        assert process.execute("run 2\nclear") == ["did run", "did clear"]
        assert process.execute("run 3") == ["did run"]


@pytest.mark.runs_programs
def test_a_lammps_that_ends_is_an_error_with_its_last_output(echo: None) -> None:
    with lammps.Lammps(30) as process, pytest.raises(lammps.LammpsError) as raised:
        process.execute("fail")
    assert str(raised.value) == "did fail"


@pytest.mark.runs_programs
def test_a_lammps_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lammps, "COMMAND", ("sleep", "600"))
    with lammps.Lammps(0.1) as process, pytest.raises(lammps.LammpsError):
        process.execute("run 1")


def test_a_wrong_byte_is_found(tmp_path: Path) -> None:
    good, bad = tmp_path / "0.0.restart", tmp_path / "0.positions.bin"
    for path in (good, bad):
        path.write_bytes(bytes(range(256)) * 10_000)
    written = {path.name: reporting.checksum(str(path)) for path in (good, bad)}
    assert lammps.differing(spec(tmp_path), written) == (written, [])

    data = bytearray(bad.read_bytes())
    data[1_500_000] ^= 1
    bad.write_bytes(data)
    now, wrong = lammps.differing(spec(tmp_path), written)
    assert [w["file"] for w in wrong] == ["0.positions.bin"]
    assert wrong[0]["written"] == written["0.positions.bin"] != now["0.positions.bin"]
