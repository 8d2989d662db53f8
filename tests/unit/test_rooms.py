import ast
from pathlib import Path

import pytest

from tests import rooms
from tests.limits import ROOT

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


def test_the_safe_cycle_is_what_the_machine_imports_of_the_core(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    texts = {
        "machine": "from elastio.core import one\nfrom elastio.core.two import Two\nfrom elastio.units import MB",
        "one": "from elastio.core.machine import decide\nfrom elastio.core.shares import Shares",
        "two": "from elastio.strategy.caps import reached",
        "shares": "",
        "three": "from elastio.core.one import first",
    }
    (tmp_path / "core").mkdir()
    for name, text in texts.items():
        (tmp_path / "core" / f"{name}.py").write_text(text)
    monkeypatch.setattr(rooms, "CORE", tmp_path / "core")
    assert sorted(path.stem for path in rooms.of_cycle()) == ["machine", "one", "situation", "two"]


def test_the_strategy_is_shown_nothing_that_it_does_not_read() -> None:
    modules = (path for path in (ROOT / "elastio" / "strategy").glob("*.py") if path.stem != "situation")
    trees = (ast.walk(ast.parse(path.read_text())) for path in modules)
    read = {node.attr for tree in trees for node in tree if isinstance(node, ast.Attribute)}
    assert [name for name in rooms.seen() if name not in read] == []


@pytest.mark.parametrize("figure", rooms.figures(), ids=lambda figure: figure.name)
def test_mechanism_and_strategy_stay_as_far_apart_as_they_were(figure: rooms.Figure) -> None:
    """Whoever lowers a figure lowers its limit with it."""
    assert 0.97 * figure.most <= figure.value <= figure.most
