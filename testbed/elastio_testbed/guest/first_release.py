"""Rewrites the agent's state as release 0.1.0 wrote it: `first_release.py STATE_DIR EXAMPLE_DIR`.

The agent must not run. EXAMPLE_DIR has a journal and a ledger of that release, `journal.jsonl` and `ledger.sql`. From
the journal its last record is kept: under the names of 0.1.0, with no key that the example's last record lacks, and the
example's value where the agent has none. The ledger gets the tables of 0.1.0, with the rows that are there.

`RENAMED` is that of the installed release, which has to know every name of 0.1.0.
"""

import contextlib
import json
import os
import sqlite3
import sys
from typing import Any

MODULES = "/usr/share/elastio"
JOURNAL, LEDGER = "journal.jsonl", "ledger.sqlite"
# The version of its schema.
VERSION = 2
# Mappings by a name: every entry is like the example's first.
BY_NAME = ("pace",)


def old_names(record: Any, example: Any, renamed: dict[str, str]) -> Any:
    """The record, or a part of it, with the keys of the example."""
    if not isinstance(record, dict) or not isinstance(example, dict):
        return record
    return {key: _old(key, record, example, renamed) for key in example}


def _old(key: str, record: dict[str, Any], example: dict[str, Any], renamed: dict[str, str]) -> Any:
    now = renamed.get(key, key)
    if now not in record:
        return example[key]
    value = record[now]
    if key == "failure":
        return (value or {}).get("text", "")
    if key in BY_NAME and example[key]:
        one = next(iter(example[key].values()))
        return {name: old_names(part, one, renamed) for name, part in value.items()}
    return old_names(value, example[key], renamed)


def last_record(path: str) -> dict[str, Any]:
    """The last record of a journal that has a state."""
    with open(path) as file:
        found = [json.loads(line) for line in file if line.endswith("}\n")]
    return next(record for record in reversed(found) if "phase" in record)


def rewrite_journal(path: str, example_path: str, renamed: dict[str, str]) -> None:
    record = old_names(last_record(path), last_record(example_path), renamed)
    record |= {"kind": "decision", "from": record["phase"], "to": record["phase"]}
    with open(path, "w") as file:
        file.write(json.dumps(record, separators=(",", ":")) + "\n")


def rewrite_ledger(path: str, example_path: str) -> None:
    """A new file with the rows of the old one, in the columns that 0.1.0 has."""
    with open(example_path) as file:
        statements = [text for text in file.read().split(";\n") if text.lstrip().startswith("CREATE")]
    new = f"{path}.first"
    with contextlib.closing(sqlite3.connect(path)) as now, contextlib.closing(sqlite3.connect(new)) as first:
        for statement in statements:
            first.execute(statement)
        tables = [name for (name,) in first.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [row[1] for row in first.execute(f"PRAGMA table_info({table})")]
            marks = ", ".join("?" * len(columns))
            for row in now.execute(f"SELECT {', '.join(columns)} FROM {table}"):
                first.execute(f"INSERT INTO {table} VALUES ({marks})", row)
        first.execute(f"PRAGMA user_version = {VERSION}")
        first.commit()
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
    os.replace(new, path)


def main() -> None:
    state, example = sys.argv[1], sys.argv[2]
    sys.path.insert(0, MODULES)
    from elastio.agent.memory import RENAMED  # noqa: PLC0415  importable from here on

    rewrite_journal(f"{state}/{JOURNAL}", f"{example}/{JOURNAL}", RENAMED)
    rewrite_ledger(f"{state}/{LEDGER}", f"{example}/ledger.sql")


if __name__ == "__main__":
    main()
