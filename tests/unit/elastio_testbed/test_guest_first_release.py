"""The program that turns today's state into that of release 0.1.0, which the agent then reads."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from elastio.accounting.ledger import Ledger
from elastio.agent.memory import RENAMED, remember
from elastio.core.state import Phase
from elastio_testbed.guest.first_release import last_record, rewrite_journal, rewrite_ledger
from tests.simulated import in_phase, machine
from tests.unit.elastio.test_ledger import BOOSTED, CLOSED, START
from tests.values import present

RELEASE = Path(__file__).parents[2] / "fixtures" / "release_0_1_0"
EXAMPLE = str(RELEASE / "journal.jsonl")


@pytest.mark.parametrize("phase", [Phase.ATTACHING, Phase.BOOSTING, Phase.FLUSHING])
def test_the_agent_reads_the_cycle_that_it_had_from_the_record_of_0_1_0(phase: Phase, tmp_path: Path) -> None:
    sim = machine()
    in_phase(sim, phase)
    journal = tmp_path / "journal.jsonl"
    journal.write_text("".join(json.dumps(record) + "\n" for record in sim.journal.records()))
    was = present(sim.state.cycle)
    boot = last_record(str(journal))["boot"]
    rewrite_journal(str(journal), EXAMPLE, RENAMED)

    written, example = last_record(str(journal)), last_record(EXAMPLE)
    assert list(written) == list(example), "no key that 0.1.0 does not have"
    assert list(written["cycle"]) == list(example["cycle"])
    assert list(written["cycle"]["marks"]) == list(example["cycle"]["marks"])
    now, wall = sim.world.clock.now(), sim.world.clock.wall()
    found = remember(journal, now=now, wall=wall, boot_id=boot).state
    cycle = present(found.cycle)
    assert (found.phase, found.inhibition, found.given_up) == (phase, None, ())
    assert (cycle.token, cycle.volume_id, cycle.cache_set) == (was.token, was.volume_id, was.cache_set)
    assert (cycle.times.boosted, cycle.failure) == (was.times.boosted, None)


def test_its_ledger_has_the_same_boosts_in_the_tables_of_0_1_0(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        for cycle in (CLOSED, BOOSTED.stamped()):
            ledger.record(cycle, START - 1000.0)
        ledger.set_learned_size("dev", 5)
        before = ledger.cycles(0.0, START + 1000)
    rewrite_ledger(str(path), str(RELEASE / "ledger.sql"))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert "failure_kind" not in [row[1] for row in db.execute("PRAGMA table_info(cycles)")]
    with Ledger(path) as ledger:
        assert ledger.cycles(0.0, START + 1000) == before
        assert ledger.learned_size("dev") == 5
