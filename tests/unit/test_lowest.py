from __future__ import annotations

from pathlib import Path

import pytest

from tests.lowest import entry_of, libraries

PINS = ("click==8.1", "psutil==5.9")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTIO_CACHE", str(tmp_path))
    return tmp_path


def test_other_libraries_are_kept_elsewhere(cache: Path) -> None:
    assert entry_of(PINS) == entry_of(list(PINS))
    assert entry_of(PINS).parent == cache
    others = [("click==8.2", PINS[1]), PINS[:1], PINS[1:], ("click==8.1psutil==5.9",)]
    assert len({entry_of(pins) for pins in (PINS, *others)}) == 5


def test_libraries_that_are_there_are_not_installed_again(cache: Path) -> None:
    entry_of(PINS).mkdir()
    assert libraries(PINS, cache / "python") == entry_of(PINS)  # pip is a program, and this test may run none
