"""`elastio shares`: who uses the device and what the weights would give, on a machine whose load goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.control.exit_codes import Exit
from elastio.control.status import CapacityPart, Status
from elastio.core.shares import LatencyTarget, Reserved
from elastio.core.state import AgentState, Phase
from elastio.host.cgroups import CGROUPS
from elastio_cli.shares import NO_WEIGHTS
from elastio_setup.group_sampler import READINGS
from tests.fixtures.shared_device import DB, ETL, SharedDevice
from tests.fixtures.sysfs_tree import BACKING_UUID, Tree, build

from .conftest import FakeAgent, Golden, Shell, published, standing
from .machine import LEAST, UUID


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return build(tmp_path / "root")


@pytest.fixture
def machine(tree: Tree) -> SharedDevice:
    return SharedDevice(tree)


def status_of(state: AgentState) -> Status:
    """What the agent of this machine publishes: a backing volume of 60 MB/s."""
    return replace(published(state), device_uuid=BACKING_UUID)


@pytest.fixture
def shell(elastio: Shell, agent: FakeAgent, machine: SharedDevice) -> Shell:
    agent.statuses = [status_of(standing(Phase.IDLE))]
    return Shell(replace(elastio.app, clock=machine, sleep=machine.sleep))


def test_it_shows_capacity_use_weight_and_share(shell: Shell, machine: SharedDevice, golden: Golden) -> None:
    machine.loads["user.slice"] = (0.0, 0.05)
    machine.sleep(1.0)
    result = shell("shares")
    assert result.exit_code == Exit.OK, result.stderr
    golden("shares.txt", result.stdout)


def test_the_document_has_the_same(shell: Shell) -> None:
    shown = json.loads(shell("shares", "--json").stdout)
    assert (shown["phase"], shown["overloaded"]) == ("idle", True)
    assert (shown["capacity"]["mb_s"], shown["capacity"]["bandwidth_mb_s"]) == (pytest.approx(58.2), 60.0)
    db, etl = shown["groups"]
    assert (db["cgroup"], db["weight"], db["waiting"]) == (DB, 200, 0.5)
    assert (db["read_mb_s"], db["write_mb_s"]) == (pytest.approx(20.0), pytest.approx(10.0))
    assert (db["share_mb_s"], db["would_get_mb_s"]) == (pytest.approx(38.8), pytest.approx(38.8))
    assert (etl["share_mb_s"], etl["wants_more"]) == (pytest.approx(19.4), True)
    assert etl["in_flight_bytes"] == pytest.approx(28e6 * 0.005)


def test_a_reservation_that_is_in_force_counts(shell: Shell, agent: FakeAgent) -> None:
    status = status_of(standing(Phase.IDLE))
    assert status.capacity is not None
    capacity = replace(status.capacity, shared_mb_s=58.2, reserve=(Reserved(ETL, 29.1),))
    agent.statuses = [replace(status, capacity=capacity)]
    db, etl = json.loads(shell("shares", "--json").stdout)["groups"]
    assert (db["share_mb_s"], etl["share_mb_s"]) == (pytest.approx(29.1), pytest.approx(29.1))


def test_a_target_is_shown_beside_what_requests_take(shell: Shell, agent: FakeAgent, machine: SharedDevice) -> None:
    machine.write_ms = 15
    machine.loads[DB] = (20.0, 0.0)
    status = status_of(standing(Phase.IDLE))
    assert status.capacity is not None
    capacity = replace(status.capacity, shared_mb_s=58.2, latency=(LatencyTarget("etl.service", 12.5),))
    agent.statuses = [replace(status, capacity=capacity)]
    groups = json.loads(shell("shares", "--json").stdout)["groups"]
    assert [(each["request_ms"], each["target_ms"]) for each in groups] == [
        (pytest.approx(5.0), None),
        (pytest.approx(20.0), 12.5),
    ]
    assert "20.0 of 12.5" in shell("shares").stdout


def test_weights_that_the_kernel_does_not_keep_are_not_invented(shell: Shell, machine: SharedDevice) -> None:
    for group in (DB, ETL):
        machine.kernel.path(f"{CGROUPS}/{group}/io.weight").unlink()
    groups = json.loads(shell("shares", "--json").stdout)["groups"]
    assert {group["cgroup"]: group["weight"] for group in groups} == {DB: None, ETL: None}
    assert NO_WEIGHTS in shell("shares").stdout.splitlines()


def test_who_may_cause_a_boost_is_what_the_agent_has_in_force(shell: Shell, agent: FakeAgent) -> None:
    status = status_of(standing(Phase.IDLE))
    load = replace(status.load, may_boost=("system.slice",), no_boost=(ETL.rpartition("/")[2],))
    agent.statuses = [replace(status, load=load)]
    groups = json.loads(shell("shares", "--json").stdout)["groups"]
    assert {group["cgroup"]: group["boosts"] for group in groups} == {DB: True, ETL: False}


def test_it_changes_nothing(shell: Shell, tree: Tree) -> None:
    def settings() -> dict[str, str]:
        """Every file that the kernel would take a setting from."""
        found = [*tree.kernel.path(CGROUPS).rglob("io.[mw]*"), *tree.kernel.path(tree.directory).rglob("*")]
        return {str(path): path.read_text() for path in found if path.is_file()}

    before = settings()
    shell("shares")
    assert settings() == before
    assert len(before) > len((DB, ETL))


@pytest.mark.parametrize(
    ("part", "line"),
    [
        (
            CapacityPart(52.8, "cache volume", 80.0, 20.0),
            "idle, overloaded: capacity 52.8 MB/s, cache volume of 80 MB/s, 20.0 of it for the flush",
        ),
        (
            CapacityPart(77.6, "backing volume", 20.0, missed=0.25),
            "idle: capacity 77.6 MB/s, backing volume of 20 MB/s; 25 % of the bytes miss the cache",
        ),
    ],
)
def test_the_first_line_says_why_the_capacity_is_what_it_is(
    shell: Shell, agent: FakeAgent, part: CapacityPart, line: str
) -> None:
    agent.statuses = [replace(status_of(standing(Phase.IDLE)), capacity=part)]
    assert shell("shares").stdout.splitlines()[0] == line


def test_without_a_load_it_says_so(shell: Shell, machine: SharedDevice) -> None:
    machine.loads.clear()
    assert shell("shares").stdout.splitlines()[1:] == ["no cgroup uses the device"]


@pytest.mark.parametrize(
    "capacity_less",
    [
        status_of(standing(Phase.FAULTED, fault="it is missing")),
        replace(status_of(standing(Phase.IDLE)), capacity=None),
    ],
)
def test_without_a_capacity_there_are_rates_and_no_shares(
    shell: Shell, agent: FakeAgent, capacity_less: Status
) -> None:
    agent.statuses = [capacity_less]
    shown = json.loads(shell("shares", "--json").stdout)
    assert (shown["capacity"]["mb_s"], shown["overloaded"]) == (None, False)
    assert shown["capacity"]["unknown"]
    assert [(group["share_mb_s"], group["wants_more"]) for group in shown["groups"]] == [(None, None)] * 2
    assert shown["capacity"]["unknown"] in shell("shares").stdout


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("cgroup.controllers", None),
        ("cgroup.controllers", "cpu memory"),
        ("cgroup.subtree_control", "cpu memory"),
    ],
)
def test_a_machine_that_counts_no_cgroup_is_refused_in_one_sentence(
    shell: Shell, machine: SharedDevice, file: str, text: str | None
) -> None:
    if text is None:
        machine.kernel.path(f"{CGROUPS}/{file}").unlink()
    else:
        machine.kernel.lay(f"{CGROUPS}/{file}", text)
    result = shell("shares")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (Exit.FAILED, "", 1)


def test_a_device_that_does_not_run_is_refused(shell: Shell, tree: Tree) -> None:
    tree.cache_missing()
    result = shell("shares")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (Exit.FAILED, "", 1)


@pytest.mark.parametrize(("has_configuration", "code"), [(True, Exit.OK), (False, Exit.CONFIG)])
def test_the_device_of_an_agent_that_does_not_name_it_is_the_configured_one(
    shell: Shell, agent: FakeAgent, code: Exit, *, has_configuration: bool
) -> None:
    agent.statuses = [replace(status_of(standing(Phase.IDLE)), device_uuid="")]
    if has_configuration:
        shell.app.config_path.write_text(LEAST.replace(UUID, BACKING_UUID))
    assert shell("shares").exit_code == code


def test_an_agent_that_does_not_answer_is_noticed_at_once(elastio: Shell, machine: SharedDevice) -> None:
    result = Shell(replace(elastio.app, clock=machine, sleep=machine.sleep))("shares")
    assert (result.exit_code, result.stderr.count("\n"), machine.sleeps) == (Exit.UNREACHABLE, 1, 0)


def test_a_cgroup_that_vanishes_is_left_out(shell: Shell, machine: SharedDevice) -> None:
    machine.on_sleep = lambda: machine.remove(ETL) if ETL in machine.loads else None
    shown = json.loads(shell("shares", "--json").stdout)
    assert [group["cgroup"] for group in shown["groups"]] == [DB]


@pytest.mark.parametrize("form", [("--json",), ()])
def test_it_goes_on_until_it_is_interrupted(shell: Shell, machine: SharedDevice, form: tuple[str, ...]) -> None:
    def interrupt() -> None:
        if machine.sleeps == 2 * READINGS:
            raise KeyboardInterrupt

    machine.on_sleep = interrupt
    result = shell("shares", "--watch", *form)
    assert result.exit_code == Exit.OK
    if form:
        assert [json.loads(line)["phase"] for line in result.stdout.splitlines()] == ["idle", "idle"]
    else:
        assert result.stdout.count("capacity") == 2


def test_watching_ends_with_the_agent(shell: Shell, machine: SharedDevice, agent: FakeAgent) -> None:
    machine.on_sleep = lambda: agent.stop() if machine.sleeps == READINGS else None
    result = shell("shares", "--watch")
    assert (result.exit_code, result.stdout.count("capacity")) == (Exit.UNREACHABLE, 1)
