"""A lost record is attributed to the kernel only with both pieces of evidence, and only a writer's last record."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from elastio_testbed.faults.acks import WriteOutcome
from elastio_testbed.faults.tears import MOST_LINES, NEAR_S, Tear, kernel_error_s, tear, torn
from elastio_testbed.guest.records import ack_line, failed_line

NAME = "run8-0"
SEEN = Tear(NAME, 100.0, 100.5, WriteOutcome(41, 100.6), WriteOutcome(42, 100.7, errno.EIO))
JOURNAL_ERROR = "bcache: bch_cache_set_error() error on 0b7c: journal io error, disabling caching"


def found(checked: int, *lost: tuple[int, str]) -> dict[str, object]:
    return {"checked": checked, "lost": len(lost), "examples": [{"number": n, "where": where} for n, where in lost]}


LOST = found(41, (41, "table"))


def test_the_last_record_of_a_proved_tear_is_attributed_to_the_kernel_whether_it_was_written_once_or_twice() -> None:
    assert torn(LOST, SEEN) == 1
    seen = replace(SEEN, acknowledged=WriteOutcome(42, 100.6), failed=WriteOutcome(43, 100.7, errno.EROFS))
    assert torn(found(42, (42, "once")), seen) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"kernel_error_s": None},  # the kernel has reported nothing
        {"failed": None},  # the writer has met no error
        {"kernel_error_s": 99.0},  # another tear's
        {"kernel_error_s": 100.65},  # the answer came before
        {"kernel_error_s": 100.05, "began_s": 100.1},
        {"acknowledged": WriteOutcome(41, 99.9)},  # acknowledged before the tear
        {
            "acknowledged": WriteOutcome(41, 100.6 + NEAR_S),
            "failed": WriteOutcome(42, 100.7 + NEAR_S, errno.EIO),
        },  # too late
        {"failed": WriteOutcome(42, 100.7 + NEAR_S, errno.EIO)},
        {"failed": WriteOutcome(43, 100.7, errno.EIO)},  # another one was written in between
        {"failed": WriteOutcome(42, 100.7, errno.ENOSPC)},
        {"failed": WriteOutcome(42, 100.5, errno.EIO)},
        {"acknowledged": None},
        {
            "acknowledged": WriteOutcome(900, 100.6),
            "failed": WriteOutcome(901, 100.7, errno.EIO),
        },
    ],
)
def test_without_both_pieces_of_evidence_in_order_a_loss_is_a_loss(change: dict[str, object]) -> None:
    assert torn(LOST, replace(SEEN, **change)) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checked", "lost"),
    [
        (41, []),
        (41, [(40, "once"), (41, "table")]),  # one writer waits for one fsync at a time
        (41, [(39, "table")]),  # another one was acknowledged after it
        (41, [(41, "log")]),  # another fsync came after it
        (41, [(41, "log"), (41, "table")]),
        (900, [(900, "once")]),  # the evidence is for another record
    ],
)
def test_only_the_last_record_in_its_last_file_is_attributed_to_the_kernel(
    checked: int, lost: list[tuple[int, str]]
) -> None:
    assert torn(found(checked, *lost), SEEN) == 0


# --- evidence ----------------------------------------------------------------------------------------------------


def log(*errors_s: float, offset: float = 0.25, name: str = NAME) -> list[str]:
    lines = [f"[{1 + offset:12.6f}] records: {name} 1.000000"]
    return lines + [f"[{at + offset:12.6f}] {JOURNAL_ERROR}" for at in errors_s]


def test_the_kernels_clock_is_converted_by_the_writers_line() -> None:
    assert kernel_error_s(log(100.5), NAME, 100.0) == pytest.approx(100.5)
    again = [*log(100.5), "[   101.000000] records: run8-0 100.000000"]
    assert kernel_error_s(again, NAME, 99.0) == pytest.approx(99.75)


def test_an_error_of_an_earlier_tear_does_not_count() -> None:
    assert kernel_error_s(log(50.0, 100.5, 100.9), NAME, 100.0) == pytest.approx(100.5)
    assert kernel_error_s(log(50.0), NAME, 100.0) is None


def test_without_a_line_of_the_writer_there_is_no_time() -> None:
    assert kernel_error_s(log(100.5)[1:], NAME, 100.0) is None
    assert kernel_error_s(log(100.5, name="run8-1"), NAME, 100.0) is None


def test_one_failed_request_is_no_evidence_but_the_end_of_the_cache_set_is() -> None:
    clock, offset = log()[0], 0.25
    one = f"[{100.6 + offset:12.6f}] bcache: bch_count_io_errors() vdc: IO error on writing data to cache."
    end = f"[{100.7 + offset:12.6f}] bcache: bch_cache_set_error() error on 0b7c: vdc: too many IO errors writing data"
    assert kernel_error_s([clock, one], NAME, 100.0) is None
    assert kernel_error_s([clock, one, end], NAME, 100.0) == pytest.approx(100.7)


def test_a_tear_is_built_from_port_and_log() -> None:
    port = ack_line(NAME, 41, 100.6) + failed_line(NAME, 42, 100.7, errno.EIO) + ack_line("run8-1", 3, 120.0)
    seen = tear(NAME, 100.0, port.decode(), log(100.5))
    assert torn(LOST, seen) == 1
    assert seen.acknowledged == WriteOutcome(41, 100.6)
    assert seen.failed == WriteOutcome(42, 100.7, errno.EIO)


def test_the_kernels_lines_after_the_tear_are_kept_up_to_a_limit() -> None:
    before, after = "[   10.000000] bcache: old", "[  100.300000] bcache: new"
    kept = tear(NAME, 100.0, "", [before, *log(), after]).kernel_log
    assert kept == (*log(), after)
    assert len(tear(NAME, 100.0, "", [after] * 2 * MOST_LINES).kernel_log) == MOST_LINES
