"""The example's cloud: one JSON file for each volume in a directory. Stands for a real cloud's API and SDK."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

# The state that follows each transient state, see `settle`.
_NEXT = {"making": "free", "bringing": "used", "fetching": "free"}


class ShelfError(Exception):
    """The shelf refuses; `code` is one of: busy, full, forbidden, wrong, unknown, silent."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Shelf:
    """The file `fault` makes the next call of a name fail: `{"make": "busy"}`; "silent": done, without a response."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def spoil(self, call: str, code: str) -> None:
        (self._folder / "fault").write_text(json.dumps({call: code}))

    def make(self, key: str, gib: int, labels: dict[str, str], now: float) -> dict[str, Any]:
        """A new volume, or the existing one with this key."""
        silent = self._take_fault("make")
        row = next((row for row in self.rows() if row["key"] == key and row["state"] != "scrapped"), None)
        if row is None:
            name = uuid.uuid4().hex
            row = {"name": name, "key": key, "gib": gib, "labels": labels, "state": "making", "user": "", "made": now}
            self._write(row)
        return self._respond(row, silent)

    def change(self, call: str, name: str, **changes: str) -> None:
        silent = self._take_fault(call)
        self._write({**self._row(name), **changes})
        self._respond({}, silent)

    def row(self, name: str) -> dict[str, Any]:
        self._take_fault("row")
        return self._row(name)

    def listing(self) -> list[dict[str, Any]]:
        self._take_fault("list")
        return self.rows()

    # --- for tests ---------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self._folder.glob("*.json"))]

    def settle(self) -> None:
        """End every change."""
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

    def _take_fault(self, call: str) -> bool:
        path = self._folder / "fault"
        wanted = json.loads(path.read_text()) if path.exists() else {}
        code = wanted.get(call)
        if code is None:
            return False
        path.unlink()
        if code == "silent":
            return True
        raise ShelfError(code)

    @staticmethod
    def _respond(row: dict[str, Any], silent: bool) -> dict[str, Any]:
        if silent:
            raise ShelfError("silent")
        return row
