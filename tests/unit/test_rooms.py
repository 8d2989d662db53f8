from pathlib import Path

import pytest

from tests import rooms

CALLS = """
from elastio.strategy import caps
from elastio.strategy.memory import Memory
from elastio.strategy.review import review as look
from elastio.core import money

def f():
    look(caps.reached(1), caps.SHARED, caps.Cap())
    Memory().known()
    money.in_force()
"""


def test_calls_into_the_strategy_are_counted_and_values_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elastio" / "core").mkdir(parents=True)
    (tmp_path / "elastio" / "core" / "one.py").write_text(CALLS)
    monkeypatch.setattr(rooms, "ROOT", tmp_path)
    monkeypatch.setattr(rooms, "CORE", tmp_path / "elastio" / "core")
    assert [line.split(": ")[1] for line in rooms.calls()] == ["review.review", "caps.reached"]


def test_the_mechanism_asks_the_strategy_no_more_often_than_it_did() -> None:
    """Whoever removes a call lowers the number with it."""
    assert len(list(rooms.calls())) == rooms.MOST
