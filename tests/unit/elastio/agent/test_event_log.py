"""One whole boost of the simulated agent, as it arrives at systemd's journal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio.agent.log_events import EventKind
from elastio.agent.narration import EventLog
from elastio.core.model import RequestKind
from elastio.core.state import Phase
from elastio.host.journald import JournaldHandler
from tests.simulated import POLICY, QUIET, STEADY, in_phase, machine
from tests.unit.elastio.host.journald_records import Journald, journald_at


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journald]:
    log = logging.getLogger("elastio")
    with journald_at(tmp_path / "socket") as receiver:
        handler = JournaldHandler(receiver.path)
        log.addHandler(handler)
        before = log.level
        log.setLevel(logging.INFO)
        yield receiver
        log.setLevel(before)
        log.removeHandler(handler)
        handler.close()


def test_a_boost_has_one_summary_with_what_it_bought_for_whom_and_its_price(journal: Journald) -> None:
    sim = machine((QUIET,), reporter=EventLog(POLICY.backing_uuid))
    sim.run_for(5)
    sim.ask(RequestKind.BOOST, asked_by=1000)
    sim.run_until_settled()
    records = journal.records()
    (over,) = [r for r in records if r.get("ELASTIO_EVENT") == "boost-over"]
    assert over["MESSAGE_ID"] == EventKind.BOOST_OVER.message_id
    assert (over["PRIORITY"], over["GIB"], over["MB_S"], over["CURRENCY"]) == ("5", "2", "80", "USD")
    assert (over["ASKED_BY"], over["DEVICE"], over["PHASE"]) == ("1000", POLICY.backing_uuid, "idle")
    assert over["VOLUME"].startswith("vol-")
    assert float(over["PRICE_PER_HOUR"]) > 0
    assert {r["CYCLE"] for r in records if "VOLUME" in r} == {over["CYCLE"]}


def test_a_fault_is_found_by_its_priority(journal: Journald) -> None:
    sim = machine(STEADY, "attach#2+=throttle", reporter=EventLog(POLICY.backing_uuid))
    in_phase(sim, Phase.BOOSTING)
    assert [r for r in journal.records() if int(r["PRIORITY"]) <= 3] == []
    sim.run_for(5)
    sim.world.vanish()
    in_phase(sim, Phase.FAULTED)
    (fault,) = [r for r in journal.records() if int(r["PRIORITY"]) <= 3]
    assert (fault["ELASTIO_EVENT"], fault["PHASE"]) == ("fault", "faulted")
