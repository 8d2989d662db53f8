"""What a release has to prove before it erases a head: that nothing on it is needed."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.errors import HostError, NotOursError
from elastio.host import superblock
from elastio.host.heads import CONTENT_SECTOR
from elastio.units import SECTOR
from elastio_setup.adopted_again import recorded_again
from tests.fixtures.errors import refused

from . import tombstones
from .adopt_machine import UUID, AdoptMachine
from .tombstones import record

STATE_AT = CONTENT_SECTOR * SECTOR + superblock.OFFSET + superblock.LAYOUT.size - 104


@pytest.fixture
def machine(tmp_path: Path) -> AdoptMachine:
    return tombstones.adopted(tmp_path)


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("looks", range(12))
def test_a_volume_that_comes_while_it_is_released_keeps_its_first_sectors(
    machine: AdoptMachine, looks: int, seen: bool
) -> None:
    """Not there, or not there again, until after so many looks at disks: released as a whole, or not begun."""
    tombstones.write(machine)
    machine.power_off()
    disk, away, head = machine.sysfs.path("sys/block/vdb"), machine.sysfs.path("sys/away"), machine.head
    count = 0

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        nonlocal count
        count += argv[0] == "blkid"
        if away.exists() and count > looks + seen:
            away.rename(disk)
        elif seen and disk.exists() and count == looks:
            disk.rename(away)
        return machine.run(argv, timeout_s=timeout_s)

    if not seen:
        disk.rename(away)
    with suppress(HostError):
        replace(machine.adopter(), run=run).release(record(machine), None)
    if away.exists():
        away.rename(disk)
    if machine.records:
        assert machine.head == head or machine.volume == machine.before
        machine.adopter().release(record(machine), None)
    assert (machine.records, machine.volume) == ([], machine.before)


@pytest.mark.parametrize("name", ["vdb", "vdh"])
@pytest.mark.parametrize("number", range(16))
def test_a_read_that_fails_once_while_it_is_released_loses_no_first_sectors(
    machine: AdoptMachine, number: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tombstones.write(machine)
    machine.power_off()
    call = {"vdb": "preadv", "vdh": "pread"}[name]
    read, left, node = getattr(os, call), number, str(machine.sysfs.path(f"dev/{name}"))

    def failing(descriptor: int, *rest: object) -> object:
        nonlocal left
        left -= str(Path(f"/proc/self/fd/{descriptor}").readlink()) == node
        if left == -1:
            left -= 1
            raise OSError(errno.EIO, "no answer")
        return read(descriptor, *rest)

    with monkeypatch.context() as patched, suppress(HostError):
        patched.setattr(os, call, failing)
        machine.adopter().release(record(machine), None)
    if not machine.records and machine.volume != machine.before:
        recorded_again(machine.adopter(), machine.sysfs.path("dev/vdh"))
    if machine.records:
        machine.adopter().release(record(machine), None)
    assert (machine.records, machine.volume) == ([], machine.before)


def test_a_volume_with_another_filesystem_is_released_by_whoever_says_so(machine: AdoptMachine) -> None:
    tombstones.write(machine)
    tombstones.remove(machine)
    machine.power_off()
    machine.found["vdb"] = {"TYPE": "xfs", "UUID": UUID[::-1]}
    with refused(HostError, "volume.missing"):
        machine.adopter().release(record(machine), None)
    replace(machine.adopter(), is_replaced=True).release(record(machine), None)
    assert machine.is_as_before


@pytest.mark.parametrize("serial", ["", "another0123456789abc"])
def test_a_volume_on_another_disk_is_not_the_one_that_was_replaced(machine: AdoptMachine, serial: str) -> None:
    tombstones.write(machine)
    machine.power_off()
    head = machine.head
    machine.sysfs.path("dev/vdb").write_bytes(bytes(len(machine.before)))
    machine.found["vdb"] = {"TYPE": "ext4", "UUID": UUID[::-1]}
    machine.lay("sys/block/vdb/serial", serial)
    with refused(HostError, "volume.missing"):
        replace(machine.adopter(), is_replaced=True).release(record(machine), None)
    assert (machine.head, machine.records) == (head, ["composed"])


def test_a_smaller_disk_is_not_the_one_that_was_replaced(machine: AdoptMachine) -> None:
    tombstones.write(machine)
    machine.power_off()
    head = machine.head
    machine.sysfs.path("dev/vdb").write_bytes(bytes(len(machine.before)))
    machine.found["vdb"] = {"TYPE": "ext4", "UUID": UUID[::-1]}
    machine.lay("sys/block/vdb/size", "2048")
    with refused(HostError, "volume.missing"):
        replace(machine.adopter(), is_replaced=True).release(record(machine), None)
    assert machine.head == head


@pytest.mark.parametrize(("state", "shown"), [(superblock.STALE, "inconsistent"), (1, "clean"), (2, "dirty")])
@pytest.mark.parametrize("is_attached", [False, True])
def test_only_after_an_accepted_loss_one_whose_head_names_a_cache_is_released(
    machine: AdoptMachine, state: int, shown: str, is_attached: bool
) -> None:
    """The tombstone has stayed. The lost set may have come back, as an empty cache."""
    tombstones.write(machine)
    with machine.sysfs.path("dev/vdh").open("r+b") as file:
        file.seek(STATE_AT)
        file.write((state << superblock.STATE_SHIFT).to_bytes(8, "little"))
    machine.lay("sys/block/dm-0/bcache/state", shown)
    if is_attached:
        machine.link("sys/block/dm-0/bcache/cache", "../../../../fs/bcache/set")
    head = machine.head
    if state == superblock.STALE and not is_attached:
        machine.adopter().release(record(machine), None)
        assert machine.is_as_before
        return
    with refused(NotOursError, "composed.cache"):
        machine.adopter().release(record(machine), None)
    assert (machine.head, machine.records) == (head, ["composed"])
