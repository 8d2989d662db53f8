"""Workers that are closed, and a journal that is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elastio.agent.journal import Journal
from elastio.agent.worker import ForkWorker

from .children import TextWorker, lost, work
from .journals import OWNER


@pytest.fixture
def make() -> Iterator[Callable[..., TextWorker]]:
    made: list[TextWorker] = []

    def new(name: str = "test", warm_up: Callable[[], None] | None = None) -> TextWorker:
        worker: TextWorker = ForkWorker(name, work, lost, warm_up)
        made.append(worker)
        return worker

    yield new
    for worker in made:
        worker.close(0.0)


@pytest.fixture
def worker(make: Callable[..., TextWorker]) -> TextWorker:
    return make()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.jsonl"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal(path, "boot-1", OWNER)
    opened.open()
    yield opened
    opened.close()
