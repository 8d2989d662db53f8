"""The application of a guest announces its dumps to the agent."""

from __future__ import annotations

import json
import selectors
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastio.control.protocol import Message, Reply, accepted, refused
from elastio.control.server import ControlServer
from elastio.core.policy import Policy
from elastio_testbed.guest import workload
from elastio_testbed.guest.announcement import AnnouncementError, announce
from elastio_testbed.machine import FIRST_S

MIB = 1 << 20


class Agent:
    """The agent's own control server, which checks every request, with a prepared reply."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked, self.reply = path, list[Message](), accepted("noted")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ControlServer(path, None, self._handle),))

    def _handle(self, request: Message, reply: Reply) -> None:
        self.asked.append(request)
        reply(self.reply)

    def _serve(self, server: ControlServer) -> None:
        with selectors.DefaultSelector() as selector:
            server.register(selector)
            while not self._is_over.is_set():
                for key, mask in selector.select(0.02):
                    server.on_ready(key, mask)
                server.sweep()
            server.close()

    def __enter__(self) -> Agent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with Agent(tmp_path / "agent.sock") as running:
        yield running


def test_an_announcement_is_what_elastio_expect_sends(agent: Agent) -> None:
    announce(str(agent.path), 91.7, 4 * MIB)
    announce(str(agent.path), 0.2, MIB)
    assert [(a["command"], a["seconds"], a["size_bytes"]) for a in agent.asked] == [
        ("expect", 92, 4 * MIB),
        ("expect", 1, MIB),
    ]


def test_an_agent_that_refuses_or_is_not_there_is_an_error(agent: Agent, tmp_path: Path) -> None:
    agent.reply = refused("too many")
    with pytest.raises(AnnouncementError):
        announce(str(agent.path), 10, MIB)
    with pytest.raises(AnnouncementError):
        announce(str(tmp_path / "missing.sock"), 10, MIB)


def spec_of(agent: Agent, folder: Path, **more: Any) -> dict[str, Any]:
    """Three dumps without a pause."""
    dumps = [2 * MIB, 4 * MIB, 4 * MIB]
    spec = {"directory": str(folder), "ranks": 1, "dumps": dumps, "compute_s": 0, "seed": 7}
    return {**spec, "agent_socket": str(agent.path), **more}


def test_every_dump_is_announced_with_its_bytes(agent: Agent, tmp_path: Path) -> None:
    workload.run(spec_of(agent, tmp_path), str(tmp_path / "report"))
    assert agent.asked == []
    workload.run(spec_of(agent, tmp_path, announced=[2 * MIB, 4 * MIB, 3 * MIB]), str(tmp_path / "report"))
    assert [a["size_bytes"] for a in agent.asked] == [2 * MIB, 4 * MIB, 3 * MIB]


def test_the_first_dump_begins_no_earlier_than_was_announced(agent: Agent, tmp_path: Path) -> None:
    began = time.time()
    spec = spec_of(agent, tmp_path, dumps=[MIB], announced=[MIB], first_s=1)
    workload.run(spec, str(tmp_path / "report"))
    first = json.loads((tmp_path / "report").read_text().splitlines()[0])
    assert [a["seconds"] for a in agent.asked] == [1]
    assert first["began"] - began >= 1


def test_the_laboratory_announces_the_first_dump_before_the_agent_would_buy_for_it() -> None:
    assert Policy(backing_bandwidth_mb_s=20, cache_bandwidth_mb_s=80).lead_s < FIRST_S


def test_an_announcement_that_fails_ends_the_run(agent: Agent, tmp_path: Path) -> None:
    agent.reply = refused("too many")
    workload.run(spec_of(agent, tmp_path, announced=[MIB, MIB, MIB]), str(tmp_path / "report"))
    assert "too many" in json.loads((tmp_path / "report").read_text().splitlines()[-1])["error"]
