"""The page on recovery says what to do about every fault."""

from __future__ import annotations

import re

from elastio.core.state import FaultKind

from .blocks import ROOT

ROW = re.compile(r"^\| `([a-z ]+)` \|.*\]\(#[\w-]+\)", re.MULTILINE)  # test_links follows the link


def test_the_table_leads_from_every_kind_of_fault_to_a_section() -> None:
    page = (ROOT / "docs/how-to/recover.md").read_text()
    assert ROW.findall(page.partition("\n## ")[0]) == [kind.value for kind in FaultKind]
