"""Several devices in one VM: which one a command is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.accounting.ledger import Ledger
from elastio.config.neighbours import devices_in
from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted, refused
from elastio.control.status import Status
from elastio.core.model import Serial, Volume, VolumeId, VolumeState, VolumeTag
from elastio.core.state import Inhibition, InhibitionReason, Listed, Phase
from elastio.host import cgroups, throttle
from tests.values import NOW, cycle

from .conftest import FakeAgent, Golden, Shell, published, standing
from .machine import LEAST, UUID, backing, lay

OTHER = "11111111-89ab-cdef-0123-456789abcdef"
ACTING = [
    ("boost",),
    ("flush",),
    ("pause",),
    ("resume",),
    ("quiesce",),
    ("unquiesce",),
    ("gc",),
    ("recover",),
    ("shutdown",),
    ("expect", "--in", "5m"),
    ("watch", "--once"),
    ("status", "--json"),
    ("why", "--json"),
]


def configure(folder: Path, name: str, uuid: str) -> None:
    state = folder / f"state-{name}"
    state.mkdir()
    agent = f'[agent]\nsocket = "{folder}/{name}.sock"\nstate_dir = "{state}"\nsocket_group = ""\n'
    (folder / f"{name}.toml").write_text(LEAST.replace(UUID, uuid) + agent)


@pytest.fixture
def shell(elastio: Shell, tmp_path: Path) -> Shell:
    """Two configured devices: `data`, and that of elastio.toml."""
    configure(tmp_path, "elastio", UUID)
    configure(tmp_path, "data", OTHER)
    return Shell(replace(elastio.app, socket=None, directory=tmp_path))


def held(phase: Phase = Phase.IDLE) -> Status:
    """An agent that holds boosts for a snapshot; its volume is consistent once it is idle."""
    inhibition = Inhibition(InhibitionReason.SNAPSHOT, NOW + 100.0)
    return published(standing(phase, inhibition=inhibition, cycle=None if phase is Phase.IDLE else cycle()))


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[dict[str, FakeAgent]]:
    """Their agents. They accept everything."""
    done = {name: accepted("done") for name in ("boost", "flush", "pause", "resume", "gc", "expect")}
    idle = published(standing(Phase.IDLE))
    made = {
        name: FakeAgent(tmp_path / f"{name}.sock", [replace(idle, device_uuid=uuid)], dict(done))
        for name, uuid in (("elastio", UUID), ("data", OTHER))
    }
    for agent in made.values():
        agent.start()
    yield made
    for agent in made.values():
        agent.stop()


@pytest.mark.parametrize("command", ACTING, ids=" ".join)
def test_what_acts_names_the_devices_and_asks_none_of_them(
    command: tuple[str, ...], shell: Shell, agents: dict[str, FakeAgent]
) -> None:
    result = shell(*command)
    assert result.exit_code == Exit.USAGE
    assert f"elastio ({UUID}), data ({OTHER})" in result.stderr
    assert [agent.asked for agent in agents.values()] == [[], []]


def asked(agent: FakeAgent) -> list[str]:
    return [str(message["command"]) for message in agent.asked if message["command"] != "status"]


@pytest.mark.parametrize("command", ["flush", "quiesce", "unquiesce"])
def test_all_devices_are_asked_where_no_name_is_known(command: str, shell: Shell, agents: dict[str, FakeAgent]) -> None:
    for agent in agents.values():
        agent.replies[command] = accepted("done")
        agent.statuses = [published(standing(Phase.IDLE)), held()]
    assert shell(command, "--all").exit_code == Exit.OK
    assert [asked(agent) for agent in agents.values()] == [[command], [command]]
    alone = Shell(replace(shell.app, directory=None, config_path=agents["data"].path.with_name("data.toml")))
    assert alone(command, "--all").exit_code == Exit.OK
    assert [len(asked(agent)) for agent in agents.values()] == [1, 2]
    for option in (("--device", "data", command), (command, "--device", "data")):
        assert shell(*option, "--all").exit_code == Exit.USAGE


def test_a_flush_of_all_goes_on_after_one_that_is_refused(shell: Shell, agents: dict[str, FakeAgent]) -> None:
    agents["elastio"].replies["flush"] = refused("faulted")
    assert shell("flush", "--all").exit_code == Exit.REFUSED
    assert asked(agents["data"]) == ["flush"]


@pytest.mark.parametrize("why", ["refused", "not clean in time"])
def test_all_devices_are_quiesced_or_none(why: str, shell: Shell, agents: dict[str, FakeAgent]) -> None:
    for agent in agents.values():
        agent.replies |= {"quiesce": accepted("done"), "unquiesce": accepted("done")}
        agent.statuses = [published(standing(Phase.IDLE)), held()]
    if why == "refused":
        agents["data"].replies["quiesce"] = refused("faulted")
    else:
        agents["data"].statuses = [published(standing(Phase.IDLE)), held(Phase.FLUSHING)]
    code = shell("quiesce", "--all", "--timeout", "1").exit_code
    assert code == (Exit.REFUSED if why == "refused" else Exit.TIMED_OUT)
    assert asked(agents["elastio"]) == ["quiesce", "unquiesce"]
    assert asked(agents["data"]) == (["quiesce"] if why == "refused" else ["quiesce", "unquiesce"])


def test_an_inhibition_that_was_ended_while_another_device_was_flushed_is_noticed(
    shell: Shell, agents: dict[str, FakeAgent]
) -> None:
    idle = published(standing(Phase.IDLE))
    for agent in agents.values():
        agent.replies |= {"quiesce": accepted("done"), "unquiesce": accepted("done")}
    agents["elastio"].statuses = [idle, held(), idle]
    agents["data"].statuses = [idle, held()]
    assert shell("quiesce", "--all").exit_code == Exit.TIMED_OUT
    assert asked(agents["elastio"]) == asked(agents["data"]) == ["quiesce", "unquiesce"]


@pytest.mark.parametrize("wanted", ["data", OTHER, OTHER.upper()])
@pytest.mark.parametrize("is_last", [False, True])
def test_the_named_device_is_asked_and_no_other(
    wanted: str, shell: Shell, agents: dict[str, FakeAgent], *, is_last: bool
) -> None:
    option = ("--device", wanted)
    result = shell("pause", *option) if is_last else shell(*option, "pause")
    assert result.exit_code == Exit.OK
    assert ([len(agents[name].asked) for name in ("elastio", "data")]) == [0, 1]


@pytest.mark.parametrize("wanted", ["/dev/bcache1", "/srv/data", "/dev/vdc", "vdc", "bcache1"])
def test_a_device_is_found_by_its_node_and_its_mount_point(
    wanted: str, shell: Shell, agents: dict[str, FakeAgent], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    backing(root)
    backing(root, "vdc", OTHER, "bcache1")
    (root / "sys/block/bcache1/dev").write_text("250:100")
    (root / "sys/class/block/bcache1").mkdir(parents=True, exist_ok=True)
    lay(root, proc__self__mountinfo="30 1 250:100 / /srv/data rw - ext4 /dev/bcache1 rw\n")
    assert shell("pause", "--device", wanted).exit_code == Exit.OK
    assert ([len(agents[name].asked) for name in ("elastio", "data")]) == [0, 1]


def test_a_device_that_is_not_there_is_refused_with_the_known_ones(
    shell: Shell, agents: dict[str, FakeAgent], golden: Golden
) -> None:
    result = shell("pause", "--device", "scratch")
    assert result.exit_code == Exit.FAILED
    golden("device_unknown.txt", result.stderr)


def test_what_reads_shows_every_device(shell: Shell, agents: dict[str, FakeAgent], golden: Golden) -> None:
    agents["data"].statuses = [published(standing(Phase.FAULTED, fault="the cache is missing"), dirty_bytes=1)]
    result = shell("status", "--check")
    golden("status_check_several.txt", result.stdout)
    assert result.exit_code == Exit.FAULTED, "that of the worst device"


def test_an_agent_that_does_not_answer_hides_no_other(shell: Shell, agents: dict[str, FakeAgent]) -> None:
    agents["elastio"].stop()
    result = shell("status")
    assert result.exit_code == Exit.UNREACHABLE
    assert "data:" in result.stdout
    assert "idle" in result.stdout
    agents["elastio"].start()


def test_one_device_needs_no_option_whatever_its_name(
    shell: Shell, agents: dict[str, FakeAgent], tmp_path: Path
) -> None:
    (tmp_path / "elastio.toml").unlink()
    assert shell("pause").exit_code == Exit.OK
    assert len(agents["data"].asked) == 1


def test_a_copy_of_the_configuration_is_no_second_device(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "kept.toml").write_text((tmp_path / "elastio.toml").read_text())
    (tmp_path / "broken.toml").write_text("[")
    assert [d.name for d in devices_in(tmp_path)] == ["elastio", "broken", "data"]


def test_metrics_have_a_label_for_each_device(shell: Shell, agents: dict[str, FakeAgent]) -> None:
    lines = shell("metrics").stdout.splitlines()
    assert {f'elastio_up{{device="{UUID}"}} 1', f'elastio_up{{device="{OTHER}"}} 1'} <= set(lines)
    assert sum(line.startswith("# TYPE elastio_up ") for line in lines) == 1


def test_a_report_adds_up_the_ledgers_of_all_devices(shell: Shell, tmp_path: Path) -> None:
    for name in ("elastio", "data"):
        with Ledger(tmp_path / f"state-{name}" / "ledger.sqlite") as ledger:
            bought = replace(cycle(), token=name, opened_wall=1e9, closed_wall=1e9 + 300, started_wall=1e9)
            ledger.record(bought, 0.0)
    both, one = shell("report", "--csv").stdout.splitlines(), shell("report", "--csv", "--device", "data").stdout
    assert len(both) == len(one.splitlines()) + 1


def test_a_device_without_a_ledger_yet_leaves_the_report_of_the_others(shell: Shell, tmp_path: Path) -> None:
    assert shell("report").exit_code == Exit.FAILED
    Ledger(tmp_path / "state-data" / "ledger.sqlite").close()
    assert shell("report").exit_code == Exit.OK


def test_free_leaves_the_limits_of_other_devices(shell: Shell, tmp_path: Path) -> None:
    root = tmp_path / "root"
    limit = root / cgroups.CGROUPS / "user.slice/io.max"
    lay(root, run__elastio__elastio_limits="", **{f"{cgroups.CGROUPS}/user.slice/io.max": ""})
    (root / "run/elastio/data.limits").write_text("250:1\n")
    for named, freed in ((), "250:0"), (("--device", "data"), "250:1"):
        held = [f"250:{number} {throttle.STOP}" for number in (0, 1)]
        limit.write_text("\n".join(held) + "\n")
        assert shell("free", *named).exit_code == Exit.OK
        assert limit.read_text().startswith(f"{freed} {cgroups.FREE}"), named


def test_a_volume_of_a_device_beside_is_neither_kept_nor_an_orphan(
    shell: Shell, agents: dict[str, FakeAgent], golden: Golden
) -> None:
    """Its tag is dirty while it is a cache: of another device's agent nobody has to release it."""
    bought = replace(owned_volume(), backing_uuid=OTHER, tag=VolumeTag.DIRTY)
    strange = replace(bought, id=VolumeId("vol-8"), backing_uuid="of-nobody")
    state = standing(Phase.IDLE, owned=(), others=(bought, strange), listed=Listed(7990.0, 9000.0))
    agents["elastio"].statuses = [published(state, neighbours=frozenset({OTHER}))]
    golden("gc_beside.txt", shell("gc", "--dry-run", "--device", "elastio").stdout)
    agents["elastio"].statuses = [published(replace(state, others=(bought,)), neighbours=frozenset({OTHER}))]
    assert shell("status", "--check", "--device", "elastio").exit_code == Exit.OK


def owned_volume() -> Volume:
    return Volume(VolumeId("vol-7"), Serial("vol7"), VolumeState.ATTACHED, 2**31, 125.0, "t", "uuid", 0.0)
