"""The writer: whole blocks, at most at its pace, ended by an interruption."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from elastio_calibration.errors import CalibrationError
from elastio_calibration.writer import Writer
from elastio_sim.clock import SimClock


def test_writes_whole_blocks_and_removes_them(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 2, block_bytes=4096)
    assert writer.write(10 * 4096) > 0
    files = sorted((tmp_path / "elastio-calibration").iterdir())
    assert [f.stat().st_size for f in files] == [5 * 4096, 5 * 4096]
    assert writer.written_bytes(10 * 4096 + 100) == 10 * 4096
    writer.work_dir.clean()
    assert list(tmp_path.iterdir()) == []
    writer.work_dir.clean()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError):
        Writer(tmp_path / "missing", 1).write(1)


def test_writes_at_the_pace_of_the_application(tmp_path: Path) -> None:
    clock = SimClock()
    writer = Writer(tmp_path, 1, block_bytes=1_000_000, pace_mb_s=4.0, now=clock.now, sleep=clock.advance)
    assert writer.write(10_000_000) == pytest.approx(2.5)


def test_writers_share_the_pace(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 2, block_bytes=1_000_000, pace_mb_s=4.0)
    assert writer._block_s == pytest.approx(0.5)
    assert Writer(tmp_path, 2)._block_s == 0.0


class Interrupted:
    """Interrupts the main thread after some blocks."""

    def __init__(self, after_blocks: int) -> None:
        self.after_blocks, self.blocks = after_blocks, 0

    def sleep(self, _seconds: float) -> None:
        self.blocks += 1
        if self.blocks == self.after_blocks:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.usefixtures("heeded_signals")
def test_an_interrupted_write_ends_after_its_present_block(tmp_path: Path) -> None:
    asked = Interrupted(after_blocks=10)
    writer = Writer(tmp_path, 1, block_bytes=4096, pace_mb_s=1.0, now=lambda: 0.0, sleep=asked.sleep)
    with pytest.raises(KeyboardInterrupt):
        writer.write(4096 * 50_000)
    assert 10 <= asked.blocks < 50_000
    writer.work_dir.clean()
    assert list(tmp_path.iterdir()) == []


def test_one_writer_that_fails_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "elastio-calibration").mkdir()
    (tmp_path / "elastio-calibration" / "writer-1").touch()
    blocks: list[float] = []
    writer = Writer(tmp_path, 2, block_bytes=4096, pace_mb_s=1.0, now=lambda: 0.0, sleep=blocks.append)
    with pytest.raises(CalibrationError):
        writer.write(2 * 4096 * 50_000)
    assert len(blocks) < 50_000
