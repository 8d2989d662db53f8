"""The tombstone of an adopted volume: whatever ends the writing or the removal of it, not a byte is lost.

The power is cut after each write, and within each write, with some of its sectors on the disk.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import composed, heads, recompose, superblock, tombstone
from elastio.host.blockdev import run_wipefs
from elastio.host.commands import run
from elastio.host.heads import BLOCK_BYTES, DATA_OFFSET_SECTORS, SAVED_SECTOR
from elastio.host.sysfs import wait_for
from elastio.host.tombstone import Tombstone, parse, serialize
from elastio.setup import adopted_record
from elastio.setup.adopted_record import Record
from elastio.units import SECTOR
from tests.fixtures.device_mapper import LOAD, SUSPEND
from tests.fixtures.errors import refused
from tests.values import present

from .adopt_machine import UUID, VOLUME_BYTES, AdoptMachine, PowerCutError

FRONT = DATA_OFFSET_SECTORS * SECTOR
# Sectors of a block that a write has reached: none, all, with and without those of the superblocks of XFS and ext4.
TORN = ((), tuple(range(8)), (0,), (1, 2, 3, 4, 5, 6, 7), (2,), (0, 1, 3, 4, 5, 6, 7), (0, 2))
WRITES = {"write": 4, "remove": 2}
STONE = Tombstone(UUID, "ext4", "5a3f0c1e-1d3b-4c59-9d57-0b6d0f1c2a34", 3)


@pytest.fixture
def machine(tmp_path: Path) -> AdoptMachine:
    found = AdoptMachine(tmp_path)
    found.adopter().adopt(found.plan())
    return found


def record(machine: AdoptMachine) -> Record:
    return present(adopted_record.load(machine.sysfs, UUID))


def name(machine: AdoptMachine) -> str:
    return composed.name_of(record(machine).head)


def shown(machine: AdoptMachine) -> bytes:
    """What the adaptive device shows."""
    return machine.sysfs.mapped_bytes(name(machine), FRONT, VOLUME_BYTES)


def write(machine: AdoptMachine) -> None:
    recompose.write_tombstone(machine.sysfs, "dm-0", wait_for)


def remove(machine: AdoptMachine) -> None:
    recompose.remove_tombstone(machine.sysfs, "dm-0", wait_for)


WORK: dict[str, Callable[[AdoptMachine], None]] = {"write": write, "remove": remove}


def is_mountable(machine: AdoptMachine) -> bool:
    """Whether any sector shows the filesystem that was in the first block."""
    block, before = machine.volume[:BLOCK_BYTES], machine.before[:BLOCK_BYTES]
    return any(block[at : at + SECTOR] == before[at : at + SECTOR] for at in range(0, BLOCK_BYTES, SECTOR))


# --- its form ------------------------------------------------------------------------------------------------


def test_what_is_serialized_is_parsed_and_a_changed_byte_is_noticed() -> None:
    sector = serialize(STONE)
    assert parse(sector) == STONE
    assert parse(bytes(SECTOR)) is None
    length = len(sector.rstrip(b"\0"))
    for at in range(len(tombstone.INTRODUCTION), length):
        with refused(NotOursError, "tombstone.damaged"):
            parse(sector[:at] + bytes([sector[at] ^ 1]) + sector[at + 1 :])
    with refused(NotOursError, "tombstone.names"):
        serialize(Tombstone("a b", "ext4", "c", 1))


@pytest.mark.runs_programs
def test_it_looks_like_nothing_to_libblkid_and_names_its_volume_to_udev(tmp_path: Path) -> None:
    node = tmp_path / "vdb"
    node.write_bytes(serialize(STONE).ljust(VOLUME_BYTES, b"\0"))
    assert run_wipefs(node, run) == ()
    with refused(HostError, "program.failed"):
        run(["blkid", "-p", str(node)])
    assert f"\nELASTIO_ADOPTED={UUID}\n".encode() in node.read_bytes()


# --- written and removed ------------------------------------------------------------------------------------------


def test_the_volume_alone_shows_nothing_and_the_device_shows_what_it_did(machine: AdoptMachine) -> None:
    assert recompose.has_tombstone(machine.sysfs, "dm-0") is False
    write(machine)
    assert (shown(machine), is_mountable(machine)) == (machine.before, False)
    assert parse(machine.volume) is not None
    assert machine.volume[BLOCK_BYTES:] == machine.before[BLOCK_BYTES:]
    assert recompose.has_tombstone(machine.sysfs, "dm-0") is True
    write(machine)
    assert shown(machine) == machine.before, "again"
    remove(machine)
    assert (shown(machine), machine.volume) == (machine.before, machine.before)
    assert recompose.has_tombstone(machine.sysfs, "dm-0") is False
    remove(machine)
    assert machine.volume == machine.before, "again"


def test_what_the_filesystem_writes_meanwhile_is_on_the_volume_afterwards(machine: AdoptMachine) -> None:
    machine.sysfs.write_mapped(name(machine), FRONT, b"before the tombstone")
    write(machine)
    machine.sysfs.write_mapped(name(machine), FRONT + 1024, b"a superblock of ext4")
    machine.sysfs.write_mapped(name(machine), FRONT + BLOCK_BYTES, b"a group descriptor")
    expected = shown(machine)
    machine.boot()
    assert shown(machine) == expected
    remove(machine)
    assert machine.volume == expected
    assert machine.volume.startswith(b"before the tombstone")
    write(machine)
    assert shown(machine) == expected, "the saved block of the time before is not shown"


def test_nothing_of_a_change_stays_open(machine: AdoptMachine) -> None:
    """Neither descriptors nor processes: an agent boosts for years."""
    write(machine)
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        remove(machine)
        write(machine)
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_device_that_is_not_composed_has_no_tombstone(machine: AdoptMachine) -> None:
    assert recompose.has_tombstone(machine.sysfs, "vdb") is None
    for work in WORK.values():
        with refused(NotOursError, "tombstone.none"):
            recompose.write_tombstone(machine.sysfs, "vdb", wait_for)
        machine.lay("sys/block/dm-0/dm/uuid", "LVM-other")
        with refused(NotOursError, "tombstone.none"):
            work(machine)
    assert machine.volume == machine.before


@pytest.mark.parametrize("work", WORK)
def test_nothing_of_bcache_is_read_while_requests_wait(
    machine: AdoptMachine, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock may be held by somebody who waits for a request."""
    if work == "remove":
        write(machine)
    read, mapped, of_bcache = machine.sysfs._text, name(machine), list[str]()

    def watched(path: str) -> str:
        if "bcache/" in path:
            assert not machine.sysfs.is_suspended(mapped), path
            of_bcache.append(path)
        return read(path)

    monkeypatch.setattr(machine.sysfs, "_text", watched)
    WORK[work](machine)
    assert bool(of_bcache) == (work == "remove")


@pytest.mark.parametrize("file", ["state", "cache"])
def test_it_stays_while_there_is_a_cache(machine: AdoptMachine, file: str) -> None:
    write(machine)
    if file == "state":
        machine.lay("sys/block/dm-0/bcache/state", "clean")
    else:
        machine.link("sys/block/dm-0/bcache/cache", "../../../fs/bcache/set")
    with refused(DeviceBusyError, "tombstone.cache"):
        remove(machine)
    assert not is_mountable(machine)


def test_it_stays_while_the_superblock_names_a_cache(machine: AdoptMachine) -> None:
    write(machine)
    head = record(machine).head
    with machine.sysfs.path("dev/vdh").open("r+b") as file:
        file.seek(head.content_sector * SECTOR + superblock.OFFSET + superblock.LAYOUT.size - 104)
        file.write((2 << 61).to_bytes(8, "little"))  # the flags: dirty
    with refused(DeviceBusyError, "tombstone.cache"):
        remove(machine)
    assert (is_mountable(machine), machine.sysfs.is_suspended(name(machine))) == (False, False)


# --- what ends it ---------------------------------------------------------------------------------------------------


def cut_within(machine: AdoptMachine, work: str, number: int, left: Iterable[int], patch: pytest.MonkeyPatch) -> bool:
    """The power is cut in the write with this number, of which these sectors are on the disk; False: it has fewer."""
    pwritev, seen = os.pwritev, 0

    def cut(descriptor: int, buffers: list[bytes], at: int) -> int:
        nonlocal seen
        seen += 1
        if seen <= number:
            return pwritev(descriptor, buffers, at)
        with Path(f"/proc/self/fd/{descriptor}").open("r+b") as file:
            for sector in left:
                file.seek(at + sector * SECTOR)
                file.write(bytes(buffers[0])[sector * SECTOR :][:SECTOR])
        raise PowerCutError

    with patch.context() as patched:
        patched.setattr(os, "pwritev", cut)
        try:
            WORK[work](machine)
        except PowerCutError:
            return True
    return False


@pytest.mark.parametrize("work", WORK)
def test_after_a_power_cut_at_any_sector_the_device_shows_the_same(
    machine: AdoptMachine, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(WRITES[work]):
        for left in TORN:
            if work == "remove":
                write(machine)
            assert cut_within(machine, work, number, left, monkeypatch)
            machine.boot()
            assert shown(machine) == machine.before, (number, left)
            assert recompose.has_tombstone(machine.sysfs, "dm-0") is (parse(machine.volume) is not None)
            write(machine)
            assert (shown(machine), is_mountable(machine)) == (machine.before, False), (number, left)
            remove(machine)
            assert (shown(machine), machine.volume) == (machine.before, machine.before), (number, left)
    if work == "remove":
        write(machine)
    assert not cut_within(machine, work, WRITES[work], (), monkeypatch), "it has no more writes"


@pytest.mark.parametrize("work", WORK)
def test_after_a_power_cut_it_can_be_released(
    machine: AdoptMachine, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(WRITES[work]):
        if work == "remove":
            write(machine)
        assert cut_within(machine, work, number, (0,), monkeypatch)
        machine.boot()
        machine.adopter().release(record(machine), None)
        assert machine.is_as_before
        machine.adopter().adopt(machine.plan())


def killed(machine: AdoptMachine, work: str, number: int) -> None:
    """A process is killed before the write with this number, while the device is suspended, and so is its guard."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        pwritev, seen = os.pwritev, 0

        def kill(descriptor: int, buffers: list[bytes], at: int) -> int:
            nonlocal seen
            seen += 1
            if seen > number:
                os.killpg(0, signal.SIGKILL)
            return pwritev(descriptor, buffers, at)

        os.pwritev = kill  # type: ignore[assignment]
        try:
            WORK[work](machine)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def mended(machine: AdoptMachine) -> tuple[str, ...]:
    """What was resumed; nothing while the guard, which was killed as well, still has the lock that it inherited."""
    try:
        return recompose.mend_all(machine.sysfs)
    except DeviceBusyError:
        return ()


@pytest.mark.parametrize("work", WORK)
def test_a_device_that_a_killed_process_left_suspended_is_resumed_with_the_right_table(
    machine: AdoptMachine, work: str
) -> None:
    for number in range(WRITES[work]):
        if work == "remove":
            write(machine)
        killed(machine, work, number)
        assert machine.sysfs.is_suspended(name(machine))
        assert wait_for(lambda: mended(machine) == ("dm-0",), 10.0)
        assert not machine.sysfs.is_suspended(name(machine))
        assert shown(machine) == machine.before, number
        assert recompose.mend_all(machine.sysfs) == (), "once"
        remove(machine)
        assert machine.volume == machine.before


def test_the_guard_resumes_it_when_the_process_alone_is_killed(machine: AdoptMachine) -> None:
    child = os.fork()
    if child == 0:
        os.pwritev = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        try:
            write(machine)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert wait_for(lambda: not machine.sysfs.is_suspended(name(machine)), 10.0)
    assert shown(machine) == machine.before


def test_nobody_resumes_it_while_its_holder_lives(machine: AdoptMachine) -> None:
    """Also `elastio free` of another agent, in the middle of its writes."""
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    with composed.locked(machine.sysfs, wait_for, 1.0), refused(DeviceBusyError, "adopt.lock"):
        recompose.mend_all(machine.sysfs)
    assert machine.sysfs.is_suspended(name(machine))
    assert recompose.mend_all(machine.sysfs) == ("dm-0",)


def test_nobody_resumes_it_who_cannot_read_the_first_sector(machine: AdoptMachine) -> None:
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    node = machine.sysfs.path("dev/vdb")
    content = node.read_bytes()
    node.write_bytes(content[:100])
    with refused(HostError, "tombstone.io"):
        recompose.mend_all(machine.sysfs)
    assert machine.sysfs.is_suspended(name(machine))
    node.write_bytes(content)
    assert recompose.mend_all(machine.sysfs) == ("dm-0",)


@pytest.mark.parametrize("request_", [LOAD, SUSPEND])
@pytest.mark.parametrize("work", WORK)
def test_a_kernel_that_refuses_changes_nothing(machine: AdoptMachine, work: str, request_: int) -> None:
    if work == "remove":
        write(machine)
    before = machine.volume
    machine.sysfs.refused[request_] = 12
    with refused(HostError, "ENOMEM"):
        WORK[work](machine)
    assert (machine.volume, shown(machine)) == (before, machine.before)


def test_a_write_that_fails_leaves_a_device_that_works(machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev, left = os.pwritev, 0

    def failing(descriptor: int, buffers: list[bytes], at: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "I/O error")
        return pwritev(descriptor, buffers, at)

    for number in range(WRITES["write"]):
        left = number
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", failing)
            with refused(HostError, "tombstone.io"):
                write(machine)
        assert (shown(machine), machine.sysfs.is_suspended(name(machine))) == (machine.before, False)
        remove(machine)


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_a_head_that_is_an_older_copy_is_refused(machine: AdoptMachine) -> None:
    older = machine.head
    write(machine)
    machine.sysfs.path("dev/vdh").write_bytes(older)
    with refused(NotOursError, "tombstone.other"):
        machine.boot()
    assert not machine.is_composed


def test_a_volume_that_was_written_to_beside_its_tombstone_is_refused(machine: AdoptMachine) -> None:
    write(machine)
    with machine.sysfs.path("dev/vdb").open("r+b") as file:
        file.seek(1024)
        file.write(b"mkfs was here")
    with refused(NotOursError, "tombstone.overwritten"):
        machine.boot()
    with refused(NotOursError, "tombstone.overwritten"):
        machine.adopter().release(record(machine), None)


def test_a_restored_copy_of_the_volume_is_refused(machine: AdoptMachine) -> None:
    write(machine)
    machine.lay("sys/block/vdb/serial", "copy0123456789abcdef")
    with refused(NotOursError, "volume.copy"):
        machine.boot()


def test_without_its_head_a_volume_with_a_tombstone_is_neither_composed_nor_released(machine: AdoptMachine) -> None:
    write(machine)
    content = machine.head
    machine.sysfs.path("dev/vdh").write_bytes(bytes(len(content)))
    with refused(HostError, "head.missing"):
        machine.boot()
    with refused(HostError, "head.missing"):
        machine.adopter().release(record(machine), None)
    assert machine.records
    machine.sysfs.path("dev/vdh").write_bytes(content)
    machine.boot()
    assert shown(machine) == machine.before


def test_a_volume_with_a_tombstone_is_taken_for_no_blank_disk(machine: AdoptMachine) -> None:
    write(machine)
    node = machine.sysfs.path("dev/vdb")
    with refused(NotOursError, "x"):
        tombstone.require_none(node, "/dev/vdb", "x")
    node.write_bytes((serialize(STONE)[:-1] + b"x").ljust(BLOCK_BYTES, b"\0"))
    with refused(NotOursError, "x"):
        tombstone.require_none(node, "/dev/vdb", "x")


def test_the_label_before_it_is_never_overwritten(machine: AdoptMachine) -> None:
    for sequence in range(2, 6):
        before = [machine.head[slot:][:BLOCK_BYTES] for slot in heads.SLOTS]
        write(machine)
        label = present(heads.read(machine.sysfs.path("dev/vdh")))
        assert label.sequence == sequence
        kept = [machine.head[slot:][:BLOCK_BYTES] == old for slot, old in zip(heads.SLOTS, before, strict=True)]
        assert sorted(kept) == [False, True]
        assert machine.head[SAVED_SECTOR * SECTOR :][:BLOCK_BYTES] == machine.before[:BLOCK_BYTES]
        remove(machine)
