"""`elastio boost --drill`: a whole boost on `elastiod --sim`, and every reason not to begin one."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.control.client import MAX_REPLY_BYTES
from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted
from elastio.control.status import InhibitionPart, SpendPart, Status, VolumePart
from elastio.core.cycle import Trigger
from elastio.core.model import Quote, VolumeSpec
from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio.errors import HostError
from elastio.units import GB, GIB
from elastio_cli import drill
from elastio_cli.drill_file import DrillFile, blocks_for, removed
from elastio_sim.kernel import KernelSettings
from elastio_sim.workload import Segment, Trace
from tests.fixtures.errors import refused

from .conftest import FakeAgent, Golden, Shell, published, standing
from .machine import backing, lay
from .sim_machine import SimMachine
from .test_status import CYCLE

NUMBER = re.compile(r"\d+(\.\d+)?")
NAME = re.compile(r"(vol-|\.elastio-drill-)\w+")
Start = Callable[..., SimMachine]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[SimMachine] = []

    def begin(**options: object) -> SimMachine:
        made.append(SimMachine(tmp_path / "agent.sock", **options))  # type: ignore[arg-type]  # passed on as given
        return made[-1]

    yield begin
    for machine in made:
        machine.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The mounted filesystem of the adaptive device."""
    place = tmp_path / "data"
    place.mkdir()
    mounted(tmp_path, place)
    return place


def mounted(tmp_path: Path, place: Path) -> None:
    backing(tmp_path / "root", uuid=KernelSettings().backing_uuid)
    lay(tmp_path / "root", proc__self__mountinfo=f"36 35 250:99 / {place} rw - ext4 /dev/bcache0 rw\n")


def without_numbers(text: str, data: Path) -> str:
    return NUMBER.sub("N", NAME.sub(r"\1ID", text.replace(str(data), "/data")))


def test_buys_the_smallest_cache_uses_it_and_leaves_nothing(
    start: Start, elastio: Shell, data: Path, golden: Golden
) -> None:
    machine = start()
    result = elastio("boost", "--drill")
    assert result.exit_code == Exit.OK, result.output
    machine.stop()
    assert [(size, state in ("gone", "deleting")) for size, state in machine.bought] == [(GIB, True)]
    assert list(data.iterdir()) == []
    golden("boost_drill.txt", without_numbers(result.stdout, data))
    figures = dict(line.split(maxsplit=1) for line in result.stdout.replace("first boost", "first").splitlines()[-3:])
    assert figures["left"] == "0 volumes left"
    assert float(figures["cost"].split()[0]) > 0
    assert float(figures["cost"].split()[2]) > 0


def test_prints_one_document_for_programs(start: Start, elastio: Shell, data: Path) -> None:
    machine = start()
    result = elastio("boost", "--drill", "--json")
    assert result.exit_code == Exit.OK, result.output
    machine.stop()
    found = json.loads(result.stdout)
    assert (found["size_bytes"], found["volumes_left"], found["is_compared"]) == (GIB, 0, True)
    assert 0 < found["attached_after_s"] < found["deleted_after_s"]
    assert found["volume_id"] in result.stderr, "the steps are told there"
    assert min(found["cost"], found["agbs"]) > 0


def test_a_drill_that_fails_prints_no_document(start: Start, elastio: Shell, data: Path) -> None:
    start(settings={"faults": "create#1=quota"})
    result = elastio("boost", "--drill", "--json")
    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")


def test_a_load_that_begins_meanwhile_has_a_boost_of_its_own(start: Start, elastio: Shell, data: Path) -> None:
    machine = start(load=Trace((Segment(3600, 90),)))
    result = elastio("boost", "--drill")
    assert result.exit_code == Exit.OK, result.output
    machine.stop()
    first, *_ = machine.bought
    assert first[0] == GIB
    assert first[1] in ("gone", "deleting")
    assert "0 volumes left" in result.stdout


def test_a_simulated_machine_without_a_filesystem_drills_without_a_file(start: Start, elastio: Shell) -> None:
    start()
    result = elastio("boost", "--drill")
    assert result.exit_code == Exit.OK, result.output
    assert "no file is written" in result.stdout


def test_a_boost_that_fails_is_the_end(start: Start, elastio: Shell, data: Path) -> None:
    machine = start(settings={"faults": "create#1=quota"})
    result = elastio("boost", "--drill")
    assert (result.exit_code, machine.bought) == (Exit.FAILED, [])
    assert list(data.iterdir()) == []


def test_a_file_that_cannot_be_written_ends_in_a_flush(start: Start, elastio: Shell, tmp_path: Path) -> None:
    mounted(tmp_path, Path("/proc"))  # where nobody can create a file
    machine = start()
    result = elastio("boost", "--drill")
    assert result.exit_code == Exit.FAILED
    machine.stop()
    machine.daemon.turn(0, 120)
    assert [state for _, state in machine.bought] == ["gone"]
    reasons = [str(record.get("reason")) for record in machine.daemon.simulation.journal.records()]
    assert [reason for reason in reasons if "asked to flush" in reason]
    assert "0 volumes left" not in result.stdout


def test_without_a_mounted_filesystem_nothing_is_bought(start: Start, elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root", uuid=KernelSettings().backing_uuid)
    machine = start()
    result = elastio("boost", "--drill")
    assert (result.exit_code, machine.bought) == (Exit.FAILED, [])


# --- reasons not to begin ----------------------------------------------------------------------------------


def idle(**changes: object) -> Status:
    return replace(published(standing(Phase.IDLE)), **{"owned": (), **changes})  # type: ignore[arg-type]  # any field


FAULTED = published(standing(Phase.FAULTED, fault="the cache is missing"))
HELD = idle(hold=InhibitionPart("snapshot", 60.0, True, True))
BUSY = replace(published(standing(Phase.BOOSTING, cycle=CYCLE)), owned=())
LEFT = idle(owned=(VolumePart("vol-1", "available", GIB),))
DELETING = VolumePart("vol-1", "deleting", GIB)
REASONS = [
    (FAULTED, "drill.fault"),
    (HELD, "drill.held"),
    (LEFT, "drill.volumes"),
    (idle(owned=None), "drill.not_ready"),
    (idle(recovered=False), "drill.not_ready"),
]


@pytest.mark.parametrize(("seen", "code"), REASONS, ids=[f"{n}-{code}" for n, (_, code) in enumerate(REASONS)])
def test_refuses_while_something_else_is_there(seen: Status, code: str, agent: FakeAgent, elastio: Shell) -> None:
    agent.statuses, agent.replies = [seen], {"boost": accepted("buying")}
    result = elastio("boost", "--drill")
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.REFUSED, 1)
    assert [message["command"] for message in agent.asked] == ["status"]
    reason = drill.obstacle(seen)
    assert reason is not None
    assert reason.code == code


def test_a_boost_that_is_under_way_is_waited_for(start: Start, elastio: Shell, data: Path) -> None:
    machine = start(load=Trace((Segment(20, 90),)))
    assert elastio("boost").exit_code == Exit.OK
    result = elastio("boost", "--drill")
    assert result.exit_code == Exit.OK, result.output
    assert result.stdout.index("a boost is under way") < result.stdout.index("buying a cache")
    assert result.stdout.count("a boost is under way") == 1
    machine.stop()
    assert [size for size, _ in machine.bought][1:] == [GIB]
    assert "0 volumes left" in result.stdout


def test_a_boost_that_does_not_end_is_not_waited_for_forever(
    agent: FakeAgent, elastio: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill, "REST_S", 0.05)
    agent.statuses = [BUSY]
    assert elastio("boost", "--drill").exit_code == Exit.TIMED_OUT
    assert {message["command"] for message in agent.asked} == {"status"}


def test_a_boost_for_a_load_that_is_always_first_is_left_alone(
    agent: FakeAgent, elastio: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill, "REST_S", 0.05)
    simulated = replace(idle().agent, cloud="sim")
    loaded = published(standing(Phase.ATTACHING, cycle=replace(CYCLE, trigger=Trigger.LOAD)))
    agent.statuses = [idle(agent=simulated), idle(agent=simulated), replace(loaded, agent=simulated)]
    agent.replies = {"boost": accepted("a boost is under way (attaching)"), "flush": accepted("flushing")}
    result = elastio("boost", "--drill")
    assert result.exit_code in (Exit.REFUSED, Exit.TIMED_OUT), result.output
    assert "flush" not in [message["command"] for message in agent.asked]


def test_a_boost_that_begins_between_look_and_request_is_waited_for(agent: FakeAgent, elastio: Shell) -> None:
    """As of a filesystem that is new, and writes its tables in the background."""
    simulated = replace(idle().agent, cloud="sim")
    at_rest, ended = idle(agent=simulated), idle(agent=simulated, listed_ago_s=0.1)
    first = published(standing(Phase.ATTACHING, cycle=replace(CYCLE, trigger=Trigger.LOAD)))
    first = replace(first, owned=(), agent=simulated)
    own = replace(CYCLE, trigger=Trigger.OPERATOR, token="own")
    boosted = replace(published(standing(Phase.BOOSTING, cycle=own)), agent=simulated)
    agent.statuses = [at_rest, at_rest, first, first, at_rest, boosted, ended]
    agent.replies = {name: accepted(name) for name in ("boost", "flush", "gc")}
    result = elastio("boost", "--drill")
    assert result.exit_code == Exit.OK, result.output
    asked = [message["command"] for message in agent.asked if message["command"] in ("boost", "flush", "gc")]
    assert asked == ["boost", "boost", "flush", "gc"]


@pytest.mark.parametrize(
    ("listed", "code"),
    [
        ([idle(listed_ago_s=0.1)], Exit.OK),
        ([idle(listed_ago_s=None, owned=LEFT.owned), idle(listed_ago_s=0.1)], Exit.OK),
        ([idle(listed_ago_s=0.1, owned=(DELETING,)), idle(listed_ago_s=0.1)], Exit.OK),
        ([idle(listed_ago_s=0.1, owned=LEFT.owned)], Exit.TIMED_OUT),
    ],
    ids=["gone", "not listed yet", "being deleted", "left over"],
)
def test_only_a_new_list_without_the_volume_proves_that_nothing_is_left(
    listed: list[Status], code: Exit, agent: FakeAgent, elastio: Shell
) -> None:
    boosting = published(standing(Phase.BOOSTING, cycle=replace(CYCLE, trigger=Trigger.OPERATOR)))
    course = [idle(), idle(), boosting, idle(), *listed]
    agent.statuses = [replace(seen, agent=replace(seen.agent, cloud="sim")) for seen in course]
    agent.replies = {name: accepted(name) for name in ("boost", "flush", "gc")}
    result = elastio("boost", "--drill")
    assert result.exit_code == code, result.output
    assert ("0 volumes left" in result.stdout) == (code == Exit.OK)


def test_an_idle_agent_without_volumes_is_no_obstacle() -> None:
    assert drill.obstacle(idle()) is None


def test_a_boost_whose_answer_does_not_come_is_flushed_all_the_same(agent: FakeAgent, elastio: Shell) -> None:
    agent.statuses = [idle(agent=replace(idle().agent, cloud="sim"))]
    agent.replies = {"boost": accepted("x" * MAX_REPLY_BYTES), "flush": accepted("flushed")}
    assert elastio("boost", "--drill").exit_code == Exit.FAILED
    assert [m["command"] for m in agent.asked if m["command"] in ("boost", "flush")] == ["boost", "flush"]


@pytest.mark.parametrize("option", [("--size", "1"), ("--dry-run",), ("--wait",)])
def test_takes_no_other_option(option: tuple[str, ...], agent: FakeAgent, elastio: Shell) -> None:
    assert elastio("boost", "--drill", *option).exit_code == Exit.USAGE
    assert agent.asked == []


# --- figures -----------------------------------------------------------------------------------------------


def spent(boosts: int, agbs: float, cost: float, **around: object) -> SpendPart:
    return SpendPart(boosts, agbs, cost, None, None, None, **around)  # type: ignore[arg-type]  # any field


QUOTE = Quote(VolumeSpec(GB, 100.0), "USD", 0.36, 60.0, "a price list")


def test_the_bill_is_what_the_agent_has_billed_meanwhile() -> None:
    found = drill.bill(spent(3, 1000.0, 0.5), spent(4, 7000.0, 0.506), QUOTE, 70.0)
    assert (found.agbs, found.is_estimate) == (6000.0, False)
    assert found.cost == pytest.approx(0.006)


@pytest.mark.parametrize(
    "after", [spent(0, 10.0, 0.0), spent(5, 9000.0, 1.0), spent(4, 2000.0, 0.6, known=False)], ids=str
)
def test_a_bill_that_is_not_of_the_drill_alone_is_estimated_by_the_quote(after: SpendPart) -> None:
    found = drill.bill(spent(3, 1000.0, 0.5), after, QUOTE, 30.0)
    assert (found.agbs, found.is_estimate) == (6000.0, True)
    assert found.cost == pytest.approx(0.006)


def test_an_unknown_price_leaves_agbs() -> None:
    unknown = replace(QUOTE, price_known=False, price_per_hour=0.0)
    billed = drill.bill(spent(3, 0.0, 0.5), spent(4, 6000.0, 0.5, unpriced=1), unknown, 30.0)
    estimated = drill.bill(spent(3, 0.0, 0.5), spent(0, 0.0, 0.0), unknown, 30.0)
    assert [(each.agbs, each.cost) for each in (billed, estimated)] == [(6000.0, None), (6000.0, None)]


def test_a_volume_that_is_still_listed_is_left_over_unless_a_later_boost_uses_it() -> None:
    seen = replace(BUSY, owned=(VolumePart("vol-9", "available", GIB),))
    assert [volume.id for volume in drill.left_over(seen, "another token")] == ["vol-9"]
    assert seen.cycle is not None
    later = replace(seen, cycle=replace(seen.cycle, volume_id="vol-9"))
    assert drill.left_over(later, "another token") == ()
    assert drill.left_over(later, seen.cycle.token) != ()


@pytest.mark.parametrize(
    ("mb_s", "interval_s", "blocks"),
    [(33.0, 1.0, 4), (131.0, 1.0, 16), (131.0, 0.2, 3), (1000.0, 5.0, 16), (3.0, 1.0, 1)],
)
def test_the_file_is_smaller_than_a_load(mb_s: float, interval_s: float, blocks: int) -> None:
    assert blocks_for(Policy(mb_s, 500.0), interval_s) == blocks


def test_a_file_that_has_changed_is_found_out(tmp_path: Path) -> None:
    file = DrillFile(tmp_path / "file", b"seed", 2)
    file.write()
    file.compare()
    written = file.path.read_bytes()
    file.path.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    with refused(HostError, "drill.content"):
        file.compare()
    file.remove()
    file.remove()
    assert not file.path.exists()


def test_the_file_is_read_from_the_device_and_not_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still in memory would be compared with itself."""

    def refuse(descriptor: int, offset: int, length: int, advice: int) -> None:
        assert (offset, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        raise OSError(errno.EIO, "the memory cannot be dropped")

    file = DrillFile(tmp_path / "file", b"seed", 1)
    file.write()
    monkeypatch.setattr(os, "posix_fadvise", refuse)
    with refused(HostError, "drill.file"):
        file.compare()


def test_only_a_file_with_wrong_content_is_kept(tmp_path: Path) -> None:
    with refused(HostError, "drill.content"), removed(tmp_path, 1) as wrong:
        assert wrong is not None
        wrong.path.write_bytes(b"something else")
        wrong.compare()
    assert list(tmp_path.iterdir()) == [wrong.path]

    def interrupted() -> None:
        with removed(tmp_path, 1) as file:
            assert file is not None
            file.write()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == [wrong.path]


def test_a_file_of_that_name_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with refused(HostError, "drill.file"):
        DrillFile(tmp_path / "file", b"seed", 2).write()
    assert (tmp_path / "file").read_text() == "mine"
