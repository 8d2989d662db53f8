"""What installed distributions add to the command line, found by entry point; nothing of it is imported by name.

- `elastio.commands`: a click command, beside the agent's own ones.
- `elastio.plots`: `timeline(runs, title, path)` draws the runs of `elastio simulate --trace`;
  `bandwidth(points, inflection_mb_s, title, path)` the curve of `elastio profile`; `report(ledgers, report, machine,
  credits)` returns the page of `elastio report --html`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from elastio.errors import ElastioError

COMMANDS = "elastio.commands"
PLOTS = "elastio.plots"


def installed(group: str) -> dict[str, EntryPoint]:
    """Every entry point of the group by name."""
    return {entry.name: entry for entry in entry_points(group=group)}


def load(entry: EntryPoint) -> Any:
    """What the entry point names. Raises ElastioError where it, or a library that it needs, is not installed."""
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        owner = entry.dist.name if entry.dist else "an unnamed distribution"
        raise ElastioError(f"{entry.name} of {owner} cannot be loaded: {error}", code="extension.broken") from error
