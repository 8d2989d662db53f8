"""The page of a report, with the courses of its boosts as the ledgers have them."""

from __future__ import annotations

from collections.abc import Sequence

from elastio.accounting.history_store import read_samples
from elastio.accounting.ledger import Ledger
from elastio.accounting.report import Report
from elastio_adviser.page.boost_picture import Course, window
from elastio_adviser.page.report_page import pictured, to_html


def page(ledgers: Sequence[Ledger], made: Report, machine: str, credits: str) -> str:
    """HTML. `machine` names the page; `credits`: a sentence, or empty. Raises LedgerError."""
    courses = {}
    owner = {row.token: each for each in ledgers for row in each.cycles(0.0, made.until, with_steps=False)}
    for boost in pictured(made):
        row = boost.row
        ledger = owner[row.token]
        runs = read_samples(ledger.file, *window(row, made.until)).get(row.device_uuid, ())
        spans = [s for s in ledger.spans(row.started_wall, row.started_wall + 1) if s.device_uuid == row.device_uuid]
        backing = spans[0].backing_mb_s if spans else None
        courses[row.token] = Course(row, ledger.timestamps(row.token), runs, backing, made.until)
    return to_html(made, courses, machine, credits)
