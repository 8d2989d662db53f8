"""Montage makes a mosaic of images, and each of its steps stages its files through the data volume.

`python3 montage.py prepare SPEC` makes the raw images; `python3 montage.py run SPEC REPORT` makes the mosaic and writes
one JSON object: `steps`, `workflow_s`, `mosaic` (its CRC-32). SPEC: `directory` on the data volume, `work` (a folder in
memory), `side` (images along each side of the region), `pixels` (of an image, along each side), `compute_s` of each
step by its name, `timeout_s` for one program.

As with the published `condorio`, a step copies its inputs from the shared directory into a folder of its own, computes
there, and copies its outputs back. Copies in come from the device, not from the page cache, and copies out are fsynced.
A step computes for real and sleeps for the rest of its `compute_s`, so that the proportion of computing and I/O does
not depend on the processor.
"""

import array
import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from typing import Any

Spec = dict[str, Any]
Command = tuple[str, ...]

BLOCK_BYTES = 2880  # of FITS
COPY_BYTES = 1 << 20
DEGREES_PER_PIXEL = 0.001
# Of an image's side: the distance of neighbours, so that they overlap.
DISTANCE = 0.8
HEADER = "region.hdr"


# --- images ------------------------------------------------------------------------------------------------------


def cards(width: int, height: int, centre: tuple[float, float]) -> list[tuple[str, str]]:
    """The keywords of a FITS image with a tangential projection; `centre`: its pixel that shows the reference."""
    x, y = centre
    return [
        ("NAXIS", "2"),
        ("NAXIS1", str(width)),
        ("NAXIS2", str(height)),
        ("CTYPE1", "'RA---TAN'"),
        ("CTYPE2", "'DEC--TAN'"),
        ("CRVAL1", "210.0"),
        ("CRVAL2", "54.0"),
        ("CRPIX1", f"{x:.1f}"),
        ("CRPIX2", f"{y:.1f}"),
        ("CDELT1", f"{-DEGREES_PER_PIXEL}"),
        ("CDELT2", f"{DEGREES_PER_PIXEL}"),
        ("CROTA2", "0.0"),
        ("EQUINOX", "2000.0"),
    ]


def region(spec: Spec) -> int:
    """The pixels of the mosaic along each side: all images, and some pixels around them."""
    pixels: int = spec["pixels"]
    return int((spec["side"] - 1) * pixels * DISTANCE) + pixels + 8


def header_text(spec: Spec) -> str:
    """The template of the mosaic, as Montage reads it."""
    size = region(spec)
    lines = [("SIMPLE", "T"), ("BITPIX", "-64"), *cards(size, size, (size / 2, size / 2))]
    return "".join(f"{key:<8}= {value}\n" for key, value in lines) + "END\n"


def image(spec: Spec, column: int, row: int) -> bytes:
    """A raw image: a pattern of the sky, on a background of its own that the mosaic has to even out."""
    pixels = spec["pixels"]
    left, low = (int(at * pixels * DISTANCE) + 4 for at in (column, row))
    middle = region(spec) / 2
    keywords = [("SIMPLE", "T"), ("BITPIX", "-32"), *cards(pixels, pixels, (middle - left, middle - low))]
    text = "".join(f"{key:<8}= {value:>20}".ljust(80) for key, value in keywords) + "END".ljust(80)
    blocks = -(-len(text) // BLOCK_BYTES)
    values = array.array("f")
    background = 100.0 + 10.0 * column - 7.0 * row
    for y in range(low, low + pixels):
        values.extend([background + (x * 31 + y * 17 + x * y) % 97 for x in range(left, left + pixels)])
    if sys.byteorder == "little":
        values.byteswap()
    data = values.tobytes()
    return text.ljust(blocks * BLOCK_BYTES).encode() + data + bytes(-len(data) % BLOCK_BYTES)


def prepare(spec: Spec) -> None:
    """Make the raw images on the data volume."""
    folder = os.path.join(spec["directory"], "raw")
    os.makedirs(folder, exist_ok=True)
    for number in range(spec["side"] ** 2):
        with open(os.path.join(folder, f"{number}.fits"), "wb") as file:
            file.write(image(spec, number % spec["side"], number // spec["side"]))
    with open(os.path.join(spec["directory"], HEADER), "w") as file:
        file.write(header_text(spec))
    os.sync()


# --- staging -----------------------------------------------------------------------------------------------------


def copy(source: str, target: str, on_device: str) -> int:
    """Copy a file; `on_device` is the one of both whose pages are forgotten. Returns its bytes."""
    size = 0
    with open(source, "rb", buffering=0) as origin, open(target, "wb", buffering=0) as copied:
        while data := origin.read(COPY_BYTES):
            copied.write(data)
            size += len(data)
        kept = copied if on_device == target else origin
        if kept is copied:
            os.fsync(copied.fileno())
        os.posix_fadvise(kept.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return size


def stage(names: list[str], origin: str, target: str, device: str) -> int:
    """Copy folders and files, by their names, from one directory to another. `device`: the one on the data volume."""
    moved = 0
    for name in names:
        source, copied = os.path.join(origin, name), os.path.join(target, name)
        if not os.path.isdir(source):
            moved += copy(source, copied, copied if device == target else source)
            continue
        os.makedirs(copied, exist_ok=True)
        inside = [os.path.join(name, each) for each in sorted(os.listdir(source))]
        moved += stage(inside, origin, target, device)
    return moved


# --- steps -------------------------------------------------------------------------------------------------------


def steps(spec: Spec) -> list[tuple[str, list[str], list[Command], list[str]]]:
    """Of each step: its name, what it stages in, its programs, and what it stages out."""
    count = spec["side"] ** 2
    project: list[Command] = [("mProjectPP", f"raw/{n}.fits", f"projected/{n}.fits", HEADER) for n in range(count)]
    differ: list[Command] = [
        ("mImgtbl", "projected", "images.tbl"),
        ("mOverlaps", "images.tbl", "overlaps.tbl"),
        ("mDiffFitExec", "-p", "projected", "overlaps.tbl", HEADER, "differences", "fits.tbl"),
    ]
    model: list[Command] = [("mBgModel", "images.tbl", "fits.tbl", "corrections.tbl")]
    correct: list[Command] = [("mBgExec", "-p", "projected", "images.tbl", "corrections.tbl", "corrected")]
    add: list[Command] = [("mAdd", "-p", "corrected", "images.tbl", HEADER, "mosaic.fits")]
    return [
        ("project", ["raw", HEADER], project, ["projected"]),
        ("differ", ["projected", HEADER], differ, ["differences", "images.tbl", "fits.tbl"]),
        ("model", ["images.tbl", "fits.tbl"], model, ["corrections.tbl"]),
        ("correct", ["projected", "images.tbl", "corrections.tbl"], correct, ["corrected"]),
        ("add", ["corrected", "images.tbl", HEADER], add, ["mosaic.fits", "mosaic_area.fits"]),
    ]


def compute(command: Command, folder: str, timeout_s: float) -> None:
    """Run a program of Montage. Raises OSError: it failed, which its output says and not always its exit code."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode or 'stat="ERROR"' in done.stdout:
        raise OSError(f"{command[0]}: {(done.stdout + done.stderr).strip()[-300:]}")


def run_step(spec: Spec, step: tuple[str, list[str], list[Command], list[str]]) -> dict[str, Any]:
    """Stage in, compute, stage out. Times in seconds."""
    name, needed, commands, made = step
    shared, work = spec["directory"], spec["work"]
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("raw", "projected", "differences", "corrected"):
        os.makedirs(os.path.join(work, folder))
    began_s = time.monotonic()
    read = stage(needed, shared, work, shared)
    staged_s = time.monotonic()
    for command in commands:
        compute(command, work, spec["timeout_s"])
    computed_s = time.monotonic() - staged_s
    time.sleep(max(0.0, spec["compute_s"][name] - computed_s))
    finished_s = time.monotonic()
    wrote = stage(made, work, shared, shared)
    return {
        "step": name,
        "in_s": round(staged_s - began_s, 3),
        "computed_s": round(computed_s, 3),
        "over_s": round(max(0.0, computed_s - spec["compute_s"][name]), 3),
        "out_s": round(time.monotonic() - finished_s, 3),
        "read_bytes": read,
        "written_bytes": wrote,
    }


def run(spec: Spec) -> dict[str, Any]:
    began_s = time.monotonic()
    done = [run_step(spec, step) for step in steps(spec)]
    took_s = time.monotonic() - began_s
    with open(os.path.join(spec["work"], "mosaic.fits"), "rb") as file:
        mosaic = f"{zlib.crc32(file.read()):08x}"
    return {"steps": done, "workflow_s": round(took_s, 3), "mosaic": mosaic}


def main() -> None:
    with open(sys.argv[2]) as file:
        spec = json.load(file)
    if sys.argv[1] == "prepare":
        prepare(spec)
        return
    try:
        found = run(spec)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.exit(str(error))
    with open(sys.argv[3], "w") as report:
        json.dump(found, report)


if __name__ == "__main__":
    main()
