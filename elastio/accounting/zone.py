"""The time zone of the machine, in which days of the report and of the daily caps begin and end."""

from __future__ import annotations

from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo


def local_zone(localtime: Path = Path("/etc/localtime")) -> tzinfo:
    """The machine's time zone with its rules for summer time; UTC if it has none."""
    try:
        with localtime.open("rb") as file:
            return ZoneInfo.from_file(file, key=str(localtime))
    except (OSError, ValueError):
        return UTC
