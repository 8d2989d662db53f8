"""What caught each mutant that schedules or crash cases can show: `caught_by.json`, written by the campaign.

A mutant with a test of its own has it in the catalogue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .catalogue import MUTANTS

FILE = Path(__file__).with_name("caught_by.json")
HUNTED = tuple(mutant for mutant in MUTANTS if not mutant.test)


@dataclass(frozen=True)
class Caught:
    """`by` is "story", "storm" or "crash"; `what` is the text that plays it again."""

    by: str
    what: str


def stored(file: Path = FILE) -> dict[str, Caught]:
    return {name: Caught(**each) for name, each in json.loads(file.read_text()).items()}


def store(found: Mapping[str, Caught], file: Path = FILE) -> None:
    """Add these, and forget mutants that are no longer there."""
    known = {**(stored(file) if file.exists() else {}), **found}
    kept = {mutant.name: asdict(known[mutant.name]) for mutant in HUNTED if mutant.name in known}
    file.write_text(json.dumps(kept, indent=1) + "\n")


def missing(names: Iterable[str]) -> set[str]:
    """Mutants that must be hunted and have no stored case, and stored cases of no mutant."""
    return {mutant.name for mutant in HUNTED} ^ set(names)
