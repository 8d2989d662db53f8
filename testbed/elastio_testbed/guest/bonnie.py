"""Several runs of Bonnie++ with pauses; the figures are those of its CSV output.

For the command line see reporting.py. SPEC: `files_mib` (one run for each), `pause_s` between runs, `memory_mib` that
Bonnie++ may use with its page cache, `chunk_kib`, `seeks`, `timeout_s` for one run. `figures` of each run:
`write_mb_s`, `rewrite_mb_s`, `read_mb_s` (10^6 bytes per second) and `seeks_per_s`; a figure is absent if the test was
too short for Bonnie++ to measure.
"""

import csv
import subprocess
import time
from typing import Any

from elastio_testbed.guest.reporting import main, write_line

# Fields of its CSV, format 1.98: bon_csv2html(1).
FORMAT = "1.98"
KIB_PER_S_FIELDS = {"write_mb_s": 11, "rewrite_mb_s": 13, "read_mb_s": 17}
SEEKS_FIELD = 19
MIB = 1 << 20


class BonnieError(Exception):
    """Bonnie++ failed, or printed something else than its CSV."""


def figures_in(text: str) -> dict[str, float]:
    """The figures of one run from its line of CSV. Raises BonnieError."""
    row = next(csv.reader([line for line in text.splitlines() if line[:1].isdigit()]), [])
    if not row or row[0] != FORMAT or len(row) <= SEEKS_FIELD:
        raise BonnieError(f"no CSV of format {FORMAT}: {text[:200]!r}")
    found = {name: float(row[field]) * 1024 / 1e6 for name, field in KIB_PER_S_FIELDS.items() if is_figure(row[field])}
    if is_figure(row[SEEKS_FIELD]):
        found["seeks_per_s"] = float(row[SEEKS_FIELD])
    return {name: round(value, 3) for name, value in found.items()}


def is_figure(text: str) -> bool:
    """Bonnie++ prints +++++ for a test of less than half a second, and nothing for a test that it skipped."""
    return bool(text) and not text.startswith("+")


def command(spec: dict[str, Any], file_mib: int) -> list[str]:
    """One run within its share of memory, without per-character tests and file creation."""
    unit = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", f"--property=MemoryMax={spec['memory_mib']}M"]
    size = f"{file_mib}:{spec['chunk_kib']}k:{spec['seeks']}"
    # -r 0: otherwise it compares the file size with the memory of the whole guest, and refuses.
    return [*unit, "bonnie++", "-q", "-f", "-n", "0", "-r", "0", "-u", "root", "-s", size, "-d", spec["directory"]]


def bonnie(spec: dict[str, Any], file_mib: int) -> dict[str, float]:
    try:
        argv = command(spec, file_mib)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=spec["timeout_s"], check=False)
    except subprocess.TimeoutExpired as error:
        raise BonnieError(f"not finished after {spec['timeout_s']:.0f} s") from error
    if done.returncode != 0:
        raise BonnieError(f"exit code {done.returncode}: {done.stderr[-300:]}")
    return figures_in(done.stdout)


def one_run(spec: dict[str, Any], number: int) -> dict[str, Any]:
    file_mib = spec["files_mib"][number]
    began = time.time()
    figures = bonnie(spec, file_mib)
    line = {"dump": number, "began": began, "ended": time.time(), "bytes": file_mib * MIB, "figures": figures}
    if "write_mb_s" in figures:
        line["write_s"] = file_mib * MIB / 1e6 / figures["write_mb_s"]
    return line


def run(spec: dict[str, Any], report_path: str) -> None:
    with open(report_path, "a", buffering=1) as report:
        try:
            for number in range(len(spec["files_mib"])):
                if number:
                    time.sleep(spec["pause_s"])
                write_line(report, one_run(spec, number))
            write_line(report, {"done": True})
        except (BonnieError, OSError) as error:
            write_line(report, {"error": str(error)})


def verify(spec: dict[str, Any]) -> dict[str, Any]:
    """Check the unmounted filesystem: Bonnie++ deletes its files."""
    mount = subprocess.run(["findmnt", "-no", "SOURCE", spec["directory"]], capture_output=True, text=True, check=True)
    device = mount.stdout.strip()
    subprocess.run(["umount", spec["directory"]], check=True, timeout=spec["timeout_s"])
    check = ["e2fsck", "-f", "-n", device]
    done = subprocess.run(check, capture_output=True, text=True, timeout=spec["timeout_s"], check=False)
    wrong = [] if done.returncode == 0 else [{"file system": done.stdout[-500:] + done.stderr[-200:]}]
    return {"ok": not wrong, "wrong": wrong, "checksums": {}}


if __name__ == "__main__":
    main(run, verify)
