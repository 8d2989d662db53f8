"""What is printed cannot be written, or not in this encoding: one sentence, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastio.control.exit_codes import Exit

METRICS = Path(__file__).parents[2] / "fixtures" / "metrics"
RUN = [sys.executable, "-c", "import sys; from elastio_cli.main import main; sys.argv[0] = 'elastio'; main()"]
AUDIT = ("audit", str(METRICS / "sadf.json"), "--size-gib", "500")
pytestmark = pytest.mark.runs_programs


def run(*args: str, stdout: int | str = subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess[bytes]:
    out = os.open(stdout, os.O_WRONLY) if isinstance(stdout, str) else stdout
    return subprocess.run(
        [*RUN, *args], stdout=out, stderr=subprocess.PIPE, env={**os.environ, **environment}, check=False
    )


@pytest.mark.parametrize("args", [("prices",), ("--help",), AUDIT, ("events", "--help")])
def test_a_full_disk_is_one_sentence(args: tuple[str, ...]) -> None:
    done = run(*args, stdout="/dev/full")
    assert (done.returncode, done.stderr.count(b"\n")) == (Exit.FAILED, 1)


def test_stderr_on_a_full_disk_is_a_failure_and_no_more() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*RUN, "nope"], stdout=subprocess.PIPE, stderr=full, check=False)
    assert (done.returncode, done.stdout) == (Exit.FAILED, b"")


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "iso-8859-15", "cp437", "koi8-r"])
def test_signs_that_the_terminal_lacks_are_replaced(encoding: str, tmp_path: Path) -> None:
    text = (METRICS / "sadf.json").read_text().replace("db1", "größe…卷")
    (tmp_path / "x.json").write_text(text)
    done = run("audit", str(tmp_path / "x.json"), "--size-gib", "500", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (Exit.OK, b"")


def test_a_path_that_is_no_text_is_printed() -> None:
    done = run("audit", "/nowhere/\udcff…", "--size-gib", "1", PYTHONIOENCODING="iso-8859-1")
    assert (done.returncode, done.stderr.count(b"\n")) == (Exit.FAILED, 1)
