"""What the check of one device sees of the others of the VM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elastio.config.schema import load
from elastio.core.state import Phase
from elastio_setup.share_checks import CAPS, neighbours
from tests.unit.elastio_cli.conftest import FakeAgent, published, standing
from tests.unit.elastio_cli.machine import LEAST, UUID

OTHER = UUID.replace("0123", "9999")


@pytest.fixture
def agent(tmp_path: Path) -> FakeAgent:
    """The other device's, not started yet."""
    return FakeAgent(tmp_path / "b.sock", [replace(published(standing(Phase.IDLE)), device_uuid=OTHER)])


def write(tmp_path: Path, *, shares: tuple[bool, bool] = (False, False)) -> None:
    """The configurations of two devices; `b` is the other one."""
    agents = f'[agent]\nstate_dir = "{tmp_path}"\n'
    for name, uuid, is_shared in zip(("elastio", "b"), (UUID, OTHER), shares, strict=True):
        caps = f"[caps]\nshared = {str(is_shared).lower()}\n"
        text = LEAST.replace(UUID, uuid) + agents + f'socket = "{tmp_path}/{name}.sock"\n' + caps
        (tmp_path / f"{name}.toml").write_text(text)


def found(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Verdict and code by name, as the first device sees it."""
    path = tmp_path / "elastio.toml"
    return {r.name: (r.verdict, r.code) for r in neighbours(path, load(path))}


def test_a_single_device_has_no_neighbour(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "b.toml").unlink()
    (tmp_path / "notes.toml").write_text("a = 1\n")
    assert found(tmp_path) == {}


def test_an_agent_that_does_not_run_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    assert found(tmp_path) == {"neighbour b": ("warn", "unreachable")}


@pytest.mark.parametrize(
    ("changes", "shares", "result"),
    [
        ({}, (False, False), ("ok", "")),
        ({}, (True, True), ("ok", "")),
        ({}, (True, False), ("warn", "unshared")),
        ({"device_uuid": UUID}, (False, False), ("warn", "other_device")),
        ({"fault": "the cache is missing"}, (True, False), ("fail", "fault")),
    ],
)
def test_an_agent_that_runs_is_asked(
    changes: dict[str, str], shares: tuple[bool, bool], result: tuple[str, str], tmp_path: Path, agent: FakeAgent
) -> None:
    write(tmp_path, shares=shares)
    agent.statuses = [replace(agent.statuses[0], **changes)]  # type: ignore[arg-type]  # fields of Status
    agent.start()
    try:
        assert found(tmp_path) == {"neighbour b": result}
    finally:
        agent.stop()


def test_a_configuration_that_is_invalid_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    with (tmp_path / "b.toml").open("a") as file:
        file.write("misspelt = 1\n")
    assert found(tmp_path) == {"neighbour b": ("warn", "unknown")}


def test_the_statement_of_a_device_that_is_gone_is_named_where_caps_are_shared(tmp_path: Path) -> None:
    (tmp_path / "caps").mkdir()
    for uuid in (UUID, OTHER, "gone"):
        (tmp_path / "caps" / f"{uuid}.json").write_text("{}")
    write(tmp_path)
    assert CAPS not in found(tmp_path)
    write(tmp_path, shares=(True, True))
    assert found(tmp_path)[CAPS] == ("warn", "left")
