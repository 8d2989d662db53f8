"""btrfs is adopted, and nobody recognizes it while it has its tombstone: with the real programs, on files."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host.blockdev import run_wipefs
from elastio.host.commands import run
from elastio.host.tombstone import BTRFS_SUPERBLOCK as SUPERBLOCK
from elastio.units import KIB, MIB, SECTOR
from elastio_setup.adopted_volume import probe
from tests.fixtures.errors import refused

from .adopt_machine import ROOT, UUID, AdoptMachine
from .tombstones import require_hidden_by_tombstone

pytestmark = pytest.mark.runs_programs
SIZE = 128 * MIB


@pytest.fixture
def machine(tmp_path: Path) -> AdoptMachine:
    found = AdoptMachine(tmp_path)
    node = found.sysfs.path("dev/vdb")
    with node.open("wb") as file:
        file.truncate(SIZE)
    run(["mkfs.btrfs", "-q", "-f", "-U", UUID, str(node)], timeout_s=60)
    found.lay("sys/block/vdb/size", str(SIZE // SECTOR))
    found.before, found.found["vdb"] = found.volume, probe(found.sysfs, "vdb", run)
    return found


def is_recognized(machine: AdoptMachine) -> bool:
    """Whether libblkid or btrfs knows the volume alone."""
    node = machine.sysfs.path("dev/vdb")
    try:
        run(["btrfs", "inspect-internal", "dump-super", str(node)], timeout_s=60)
    except HostError as error:
        known = error.code != "program.failed"
    else:
        known = True
    return known or probe(machine.sysfs, "vdb", run) != {} or run_wipefs(node, run) != ()


def test_nobody_recognizes_it_while_it_has_its_tombstone(machine: AdoptMachine) -> None:
    require_hidden_by_tombstone(machine, is_recognized, 68 * KIB)


@pytest.mark.parametrize(("at", "code"), [(0x60, "adopt.journal"), (0x88, "adopt.devices"), (0x150, "adopt.damaged")])
def test_a_log_a_second_device_and_what_its_own_check_finds_are_refused(
    machine: AdoptMachine, at: int, code: str
) -> None:
    with machine.sysfs.path("dev/vdb").open("r+b") as file:
        file.seek(SUPERBLOCK + at)
        file.write(b"\2")
    before = machine.volume
    with refused(NotOursError, code):
        machine.plan()
    assert machine.volume == before


def mounted(machine: AdoptMachine, *places: Path) -> None:
    rows = [f"{36 + i} 22 0:44 /@ {p} rw - btrfs /dev/vdb rw" for i, p in enumerate(places)]
    machine.lay("proc/self/mountinfo", "\n".join([ROOT.strip(), *rows, ""]))


def test_it_is_named_by_its_only_mount(machine: AdoptMachine) -> None:
    machine.lay("etc/fstab", f"UUID={UUID} {machine.place} btrfs nofail,subvol=@ 0 0\n")
    mounted(machine, machine.place)
    plan = machine.plan("data")
    assert (plan.device, plan.place) == ("vdb", machine.place)
    mounted(machine, machine.place, Path("/home"))
    with refused(DeviceBusyError, "adopt.used"):
        machine.plan("data")
