"""One `elastiod --sim` for the tests of a file, idle and without a hold when a test begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim_agent import SimAgent, sim_agent


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, runs_programs: None) -> Iterator[SimAgent]:
    with sim_agent(tmp_path_factory.mktemp("sim")) as agent:
        yield agent


@pytest.fixture
def agent(running: SimAgent) -> SimAgent:
    running.settle()
    return running


@pytest.fixture
def folder() -> Path:
    return Path(__file__).parents[3] / "integrations"
