"""Whether this machine has a shelf, for `elastio init`. Does not import an SDK."""

from __future__ import annotations

from pathlib import Path

MARKER = Path("/etc/shelf")


def detect() -> bool:
    """Whether the shelf's marker file exists."""
    return MARKER.exists()
