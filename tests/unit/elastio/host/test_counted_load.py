"""What counts of a device's load, on a tree of cgroups whose counters run ahead of the device's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from elastio.core.shares import ALL_MAY, BoostRights
from elastio.host.cgroups import CGROUPS
from elastio.host.counters import LIST_S, MOST_IN_FLIGHT_BYTES, CountedLoad
from elastio.units import MIB
from tests.fixtures.sysfs_tree import Kernel

DB, TAR, NEW = "system.slice/db.service", "system.slice/tar.service", "system.slice/tar2.service"
NO_TAR = BoostRights(no=("tar*",))


class Machine:
    """The cgroups of a machine, and the clock."""

    def __init__(self, root: Path) -> None:
        self.kernel, self.now, self.rights = Kernel(root), 0.0, NO_TAR
        self.kernel.lay("sys/block/bcache0/dev", "251:0")
        for file in ("cgroup.controllers", "cgroup.subtree_control"):
            self.kernel.lay(f"{CGROUPS}/{file}", "io memory")
        self.kernel.lay(f"{CGROUPS}/system.slice/io.stat", "")
        for group in (DB, TAR):
            self.moved(group)
        self.load = CountedLoad(self.kernel, lambda: self.rights, lambda: self.now)

    def moved(self, group: str, read_mib: int = 0, written_mib: int = 0) -> None:
        """What the kernel counts of the cgroup in all."""
        counts = f"251:0 rbytes={read_mib * MIB} wbytes={written_mib * MIB} rios=1 wios=1"
        self.kernel.lay(f"{CGROUPS}/{group}/io.stat", counts)

    def counted(self, read_mib: int = 0, written_mib: int = 0) -> tuple[float, float] | None:
        """A second later the device has moved so many MiB in all; what of them counts, in MiB."""
        self.now += 1.0
        found = self.load.read("bcache0", (read_mib * MIB, written_mib * MIB))
        return None if found is None else (found[0] / MIB, found[1] / MIB)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.counted()
    return made


def test_where_all_may_boost_no_cgroup_is_read(machine: Machine) -> None:
    machine.rights = ALL_MAY
    shutil.rmtree(machine.kernel.path(CGROUPS))
    assert machine.counted(5, 5) is None


def test_the_load_of_those_without_the_right_does_not_count(machine: Machine) -> None:
    machine.moved(TAR, 10, 30)
    machine.moved(DB, 0, 12)
    assert machine.counted(10, 42) == (0, 12)
    machine.moved(TAR, 10, 70)
    assert machine.counted(10, 82) == (0, 12)
    machine.moved(DB, 3, 20)
    assert machine.counted(13, 90) == (3, 20)


def test_requests_that_are_submitted_long_before_they_are_completed_never_count(machine: Machine) -> None:
    """The cgroup is ahead of the device by some requests; the device completes them later."""
    for submitted, completed in ((24, 0), (24, 16), (40, 16), (40, 33), (60, 50), (60, 60)):
        machine.moved(TAR, 0, submitted)
        assert machine.counted(0, completed) == (0, 0), (submitted, completed)
    machine.moved(DB, 0, 7)
    assert machine.counted(0, 67) == (0, 7)


def test_what_a_cgroup_submitted_and_the_device_never_completed_is_forgotten(machine: Machine) -> None:
    most = MOST_IN_FLIGHT_BYTES // MIB
    machine.moved(TAR, 0, 100 * most)
    assert machine.counted(0, 1) == (0, 0)
    assert machine.counted(0, 1 + 3 * most) == (0, 2 * most)


def test_a_reading_that_fails_is_no_counter_that_begins_again(machine: Machine) -> None:
    machine.moved(TAR, 0, 30)
    assert machine.counted(0, 30) == (0, 0)
    machine.kernel.lay(f"{CGROUPS}/{TAR}/io.stat", "")
    machine.moved(DB, 0, 5)
    assert machine.counted(0, 35) == (0, 5)
    machine.moved(TAR, 0, 31)
    machine.moved(DB, 0, 25)
    assert machine.counted(0, 56) == (0, 25)


def test_only_what_the_named_ones_submit_counts(machine: Machine) -> None:
    machine.rights = BoostRights(("db.service",))
    machine.counted()
    machine.moved(DB, 2, 5)
    machine.moved(TAR, 0, 9)
    assert machine.counted(2, 20) == (2, 5)


def test_a_cgroup_that_comes_is_seen_and_one_that_goes_takes_nothing_with_it(machine: Machine) -> None:
    machine.moved(TAR, 0, 30)
    assert machine.counted(0, 30) == (0, 0)
    shutil.rmtree(machine.kernel.path(f"{CGROUPS}/{TAR}"))
    machine.moved(NEW, 0, 10)
    machine.now += LIST_S
    assert machine.counted(0, 40) == (0, 0)
    machine.moved(DB, 0, 6)
    assert machine.counted(0, 46) == (0, 6)
    machine.moved(TAR, 0, 4)  # another one, of the same name
    machine.now += LIST_S
    assert machine.counted(0, 50) == (0, 6)


def test_while_the_device_is_at_rest_no_cgroup_is_read(machine: Machine) -> None:
    machine.moved(DB, 0, 5)
    assert machine.counted(0, 5) == (0, 5)
    shutil.rmtree(machine.kernel.path(CGROUPS))
    assert machine.counted(0, 5) == (0, 5)


def test_where_cgroups_are_not_counted_every_load_counts(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.kernel.lay(f"{CGROUPS}/cgroup.subtree_control", "memory")
    machine.now += LIST_S
    assert machine.counted(0, 5) is None
    assert machine.counted(0, 6) is None
    assert len(caplog.records) == 1, "it is said once"
    machine.kernel.lay(f"{CGROUPS}/cgroup.subtree_control", "io memory")
    assert machine.counted(0, 9) == (0, 0), "what was moved before the first reading is not known"


@pytest.mark.parametrize("change", ["rights", "device", "counter"])
def test_after_a_change_it_begins_anew(machine: Machine, change: str) -> None:
    machine.moved(DB, 0, 5)
    assert machine.counted(0, 5) == (0, 5)
    if change == "rights":
        machine.rights = BoostRights(("db.service",))
    if change == "device":
        machine.kernel.lay("sys/block/bcache0/dev", "251:16")
    assert machine.counted(0, 3 if change == "counter" else 900) == (0, 5)
