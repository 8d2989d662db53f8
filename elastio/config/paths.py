"""Names of the files below the agent's state directory."""

from __future__ import annotations

JOURNAL = "journal.jsonl"
LEDGER = "ledger.sqlite"
GUARDS = "attached"  # one file for each backing device whose cache may hold what the device does not
