"""The toy's cloud: one JSON file for each volume in a folder. What a real cloud's API and SDK would be."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

# What becomes of a state once the shelf's clerk has been round.
_NEXT = {"making": "free", "bringing": "used", "fetching": "free"}


class ShelfError(Exception):
    """The shelf says no; `code` is one of: busy, full, forbidden, wrong, unknown, silent."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Shelf:
    """`trouble` is a file that makes the next call of a name fail: `{"make": "busy"}`; "silent": done, unanswered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def spoil(self, call: str, code: str) -> None:
        (self._folder / "trouble").write_text(json.dumps({call: code}))

    def make(self, key: str, gib: int, labels: dict[str, str], now: float) -> dict[str, Any]:
        """A new volume, or the one that was made with this key."""
        silent = self._trouble("make")
        row = next((row for row in self.rows() if row["key"] == key and row["state"] != "scrapped"), None)
        if row is None:
            name = uuid.uuid4().hex
            row = {"name": name, "key": key, "gib": gib, "labels": labels, "state": "making", "user": "", "made": now}
            self._write(row)
        return self._answer(row, silent)

    def change(self, call: str, name: str, **changes: str) -> None:
        silent = self._trouble(call)
        self._write({**self._row(name), **changes})
        self._answer({}, silent)

    def row(self, name: str) -> dict[str, Any]:
        self._trouble("row")
        return self._row(name)

    def listing(self) -> list[dict[str, Any]]:
        self._trouble("list")
        return self.rows()

    # --- the clerk ---------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self._folder.glob("*.json"))]

    def settle(self) -> None:
        """Finish what was begun."""
        for row in self.rows():
            if row["state"] == "scrapping":
                (self._folder / f"{row['name']}.json").unlink()
            elif row["state"] in _NEXT:
                user = row["user"] if row["state"] == "bringing" else ""
                self._write({**row, "state": _NEXT[row["state"]], "user": user})

    def _row(self, name: str) -> dict[str, Any]:
        path = self._folder / f"{name}.json"
        if not path.exists():
            raise ShelfError("unknown")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def _write(self, row: dict[str, Any]) -> None:
        (self._folder / f"{row['name']}.json").write_text(json.dumps(row))

    def _trouble(self, call: str) -> bool:
        path = self._folder / "trouble"
        wanted = json.loads(path.read_text()) if path.exists() else {}
        code = wanted.get(call)
        if code is None:
            return False
        path.unlink()
        if code == "silent":
            return True
        raise ShelfError(code)

    @staticmethod
    def _answer(row: dict[str, Any], silent: bool) -> dict[str, Any]:
        if silent:
            raise ShelfError("silent")
        return row
