"""What cgroups do with the device in one second, while they come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.cgroups import CGROUPS
from elastio_setup.group_sampler import READINGS, Adaptive, GroupSample, find_adaptive, sample_groups
from tests.fixtures.shared_device import DB, ETL, NUMBER, SharedDevice
from tests.fixtures.sysfs_tree import BACKING_UUID, Tree, build

DEVICE = Adaptive("bcache0", NUMBER)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return build(tmp_path)


@pytest.fixture
def machine(tree: Tree) -> SharedDevice:
    return SharedDevice(tree)


def sampled(machine: SharedDevice) -> dict[str, GroupSample]:
    return {each.group: each for each in sample_groups(machine.kernel, DEVICE, machine, machine.sleep)}


def test_rates_are_those_of_the_second(machine: SharedDevice) -> None:
    found = sampled(machine)
    assert list(found) == [DB, ETL]
    assert [found[DB].used.read_mb_s, found[DB].used.write_mb_s] == pytest.approx([20.0, 10.0])
    assert [found[ETL].used.read_mb_s, found[ETL].used.write_mb_s] == pytest.approx([0.0, 28.0])


def test_in_flight_is_what_the_rate_brings_in_the_time_of_a_request(machine: SharedDevice) -> None:
    found = sampled(machine)
    assert found[DB].in_flight_bytes == pytest.approx(30e6 * 0.005)
    assert found[ETL].in_flight_bytes == pytest.approx(28e6 * 0.005)


def test_in_flight_is_not_known_while_the_device_finishes_no_such_request(machine: SharedDevice) -> None:
    machine.loads = {DB: (20.0, 0.0), ETL: (0.0, 0.01)}
    found = sampled(machine)
    assert found[DB].in_flight_bytes == pytest.approx(20e6 * 0.005)
    assert found[ETL].in_flight_bytes is None
    machine.loads = {DB: (20.0, 0.01)}
    assert sampled(machine)[DB].in_flight_bytes is None


def test_waiting_is_the_share_of_readings_in_which_a_task_waited(machine: SharedDevice) -> None:
    found = sampled(machine)
    assert (found[DB].waiting, found[ETL].waiting) == (0.5, 0.0)


def test_a_cgroup_that_vanishes_meanwhile_is_left_out(machine: SharedDevice) -> None:
    def vanish() -> None:
        if ETL in machine.loads and machine.sleeps == 3:
            machine.remove(ETL)

    machine.on_sleep = vanish
    assert list(sampled(machine)) == [DB]


def test_a_new_cgroup_of_the_same_name_has_begun_at_nothing(machine: SharedDevice) -> None:
    def begin_again() -> None:
        if machine.sleeps == READINGS + 8:
            machine.remove(ETL)
            machine.loads[ETL] = (0.0, 28.0)

    machine.on_sleep = begin_again
    assert sampled(machine)[ETL].used.write_mb_s == pytest.approx(28.0)
    assert sampled(machine)[ETL].used.write_mb_s == pytest.approx(5.6)


def test_who_does_nothing_is_left_out(machine: SharedDevice) -> None:
    machine.loads = {DB: (0.0, 0.0)}
    machine.kernel.lay(f"{CGROUPS}/{ETL}/io.stat", "8:0 rbytes=5 wbytes=5")
    assert sampled(machine) == {}


def test_the_device_is_found_by_its_backing_device(tree: Tree) -> None:
    assert find_adaptive(tree.kernel, BACKING_UUID) == DEVICE


@pytest.mark.parametrize("uuid", [BACKING_UUID, "another"])
def test_a_device_that_does_not_run_is_refused(tree: Tree, uuid: str) -> None:
    tree.cache_missing()
    with pytest.raises(HostError) as refused:
        find_adaptive(tree.kernel, uuid)
    assert refused.value.code == "device.missing"
