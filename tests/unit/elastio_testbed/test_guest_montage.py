"""The program that makes a mosaic: its images, what its steps stage, and how long they take."""

from __future__ import annotations

import array
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.guest import montage
from elastio_testbed.guest.montage import (
    BLOCK_BYTES,
    compute,
    header_text,
    image,
    prepare,
    region,
    run_step,
    stage,
    steps,
)
from elastio_testbed.montage.evaluation import PARTS


def spec(folder: Path, **more: Any) -> dict[str, Any]:
    compute_s = dict.fromkeys(PARTS, 0.0)
    return {
        "directory": str(folder / "shared"),
        "work": str(folder / "work"),
        "side": 2,
        "pixels": 10,
        "compute_s": compute_s,
        "timeout_s": 10.0,
        **more,
    }


def keywords(text: str) -> dict[str, str]:
    lines = [text[at : at + 80] for at in range(0, len(text), 80)]
    return {line[:8].strip(): line[10:].strip() for line in lines if "=" in line}


def pixels_of(found: bytes) -> list[float]:
    values = array.array("f", found[BLOCK_BYTES : BLOCK_BYTES + 400])
    if sys.byteorder == "little":
        values.byteswap()
    return values.tolist()


# --- images --------------------------------------------------------------------------------------------------


def test_an_image_is_whole_blocks_with_the_keywords_of_its_place(tmp_path: Path) -> None:
    found = image(spec(tmp_path), 1, 0)
    assert len(found) == 2 * BLOCK_BYTES
    known = keywords(found[:BLOCK_BYTES].decode())
    assert (known["BITPIX"], known["NAXIS1"], known["NAXIS2"]) == ("-32", "10", "10")
    # The reference is in the middle of the region: 15 pixels from its edge, of which 8 and 4 are left of the image.
    assert region(spec(tmp_path)) == 26
    assert (float(known["CRPIX1"]), float(known["CRPIX2"])) == (13 - 12, 13 - 4)


def test_neighbours_show_the_same_sky_where_they_overlap_on_backgrounds_of_their_own(tmp_path: Path) -> None:
    left, right = (pixels_of(image(spec(tmp_path), column, 0)) for column in (0, 1))
    assert [right[x] - left[x + 8] for x in (0, 1)] == [10.0, 10.0]


def test_the_region_holds_all_images(tmp_path: Path) -> None:
    text = header_text(spec(tmp_path))
    assert "NAXIS1  = 26\n" in text
    assert text.endswith("END\n")


def test_prepared_are_all_images_and_the_header(tmp_path: Path) -> None:
    prepare(spec(tmp_path))
    made = sorted(path.name for path in (tmp_path / "shared").rglob("*") if path.is_file())
    assert made == ["0.fits", "1.fits", "2.fits", "3.fits", "region.hdr"]


# --- staging -------------------------------------------------------------------------------------------------


def test_folders_and_files_are_copied_and_their_bytes_counted(tmp_path: Path) -> None:
    origin, target = tmp_path / "origin", tmp_path / "target"
    (origin / "raw").mkdir(parents=True)
    target.mkdir()
    (origin / "raw/0.fits").write_bytes(b"a" * 3_000_000)
    (origin / "table").write_bytes(b"b" * 7)
    assert stage(["raw", "table"], str(origin), str(target), str(origin)) == 3_000_007
    assert (target / "raw/0.fits").read_bytes() == b"a" * 3_000_000
    assert (target / "table").read_bytes() == b"b" * 7


@pytest.mark.parametrize("is_out", [True, False])
def test_pages_of_the_device_are_forgotten_and_only_what_is_copied_to_it_is_fsynced(
    tmp_path: Path, is_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, work = tmp_path / "shared", tmp_path / "work"
    origin, target = (work, shared) if is_out else (shared, work)
    for folder in (shared, work):
        folder.mkdir()
    (origin / "table").write_bytes(b"a")
    synced: list[Path] = []
    forgotten: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(opened(number)))
    monkeypatch.setattr(os, "posix_fadvise", lambda number, *_: forgotten.append(opened(number)))
    stage(["table"], str(origin), str(target), str(shared))
    assert synced == ([shared / "table"] if is_out else [])
    assert forgotten == [shared / "table"]


def opened(number: int) -> Path:
    return Path(f"/proc/self/fd/{number}").readlink()


# --- steps ---------------------------------------------------------------------------------------------------


def test_each_step_stages_in_what_earlier_ones_have_staged_out(tmp_path: Path) -> None:
    there = {"raw", "region.hdr"}
    for name, needed, commands, made in steps(spec(tmp_path)):
        assert set(needed) <= there, name
        assert commands
        there |= set(made)
    assert "mosaic.fits" in there


def test_every_step_has_its_part_of_the_computing(tmp_path: Path) -> None:
    assert [step[0] for step in steps(spec(tmp_path))] == list(PARTS)
    assert sum(PARTS.values()) == pytest.approx(1.0)


def test_every_image_is_projected_by_a_program_of_its_own(tmp_path: Path) -> None:
    project = steps(spec(tmp_path))[0][2]
    assert [command[:2] for command in project] == [("mProjectPP", f"raw/{n}.fits") for n in range(4)]


@pytest.mark.runs_programs
def test_a_step_computes_where_its_files_are_copied_to_and_takes_its_part_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/in").write_bytes(b"12345")
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    asked = spec(tmp_path, compute_s={"model": 50.0})
    found = run_step(asked, ("model", ["in"], [("sh", "-c", "cat in in > out")], ["out"]))
    assert (tmp_path / "shared/out").read_bytes() == b"1234512345"
    assert (found["read_bytes"], found["written_bytes"], found["over_s"]) == (5, 10, 0.0)
    # `subprocess` sleeps, too, while it waits for the program.
    assert slept[-1] == pytest.approx(50.0 - found["computed_s"], abs=1.0)


@pytest.mark.runs_programs
def test_a_step_that_computes_longer_than_its_part_says_so(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    found = run_step(spec(tmp_path), ("model", [], [("true",)], []))
    assert found["over_s"] == found["computed_s"]


@pytest.mark.runs_programs
@pytest.mark.parametrize("script", ['echo \'[struct stat="ERROR", msg="no images"]\'', "echo no images; exit 3"])
def test_a_program_that_fails_ends_the_workflow_with_what_it_said(script: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no images"):
        compute(("sh", "-c", script), str(tmp_path), 10.0)


def test_the_command_ends_with_the_reason_and_reports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "spec.json"
    asked.write_text(json.dumps(spec(tmp_path)))
    monkeypatch.setattr(sys, "argv", ["montage.py", "run", str(asked), str(tmp_path / "report")])
    with pytest.raises(SystemExit, match="raw"):
        montage.main()
    assert not (tmp_path / "report").exists()
