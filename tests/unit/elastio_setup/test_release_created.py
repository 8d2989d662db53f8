"""A backing device that was made on a blank volume becomes a partition; its data stays where it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host import locks, partition_table, superblock
from elastio.units import SECTOR
from elastio_setup import release_created
from tests.fixtures.errors import refused

from .adopt_machine import UUID as FILESYSTEM
from .created_machine import BACKING, SET, STATE_AT, CreatedMachine

# More than a release has.
MOST_CHANGES = 8


@pytest.fixture(params=[2048, 16])
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> CreatedMachine:
    found = CreatedMachine(tmp_path, request.param)
    monkeypatch.setattr(os, "fsync", lambda _: found.change())
    return found


def test_the_data_is_on_a_partition_and_nothing_but_the_first_8_kib_has_changed(machine: CreatedMachine) -> None:
    assert machine.released() == "vdb1"
    assert (machine.is_released, machine.runs) == (True, False)
    assert machine.volume[8192:] == machine.before[8192:]
    start, size = (machine.sysfs.read(f"sys/block/vdb/vdb1/{file}") for file in ("start", "size"))
    assert (int(start), int(size)) == (machine.offset, len(machine.data) // SECTOR)
    with refused(ConfigError, "release.none"):
        machine.planned()


def test_a_plan_changes_nothing(machine: CreatedMachine) -> None:
    found = machine.planned()
    assert (found.adaptive, found.uuid, found.content) == ("bcache0", BACKING, "ext4")
    assert (machine.is_as_before, machine.changes, machine.runs) == (True, 0, True)


def test_a_mounted_one_is_unmounted_and_mounted_again(machine: CreatedMachine) -> None:
    machine.mount("252:0")
    assert machine.released("data") == "vdb1"
    assert f"240:17 / {machine.place}" in machine.sysfs.read("proc/self/mountinfo")


@pytest.mark.parametrize("is_mounted", [True, False])
def test_what_systemd_has_mounted_meanwhile_is_mounted(machine: CreatedMachine, is_mounted: bool) -> None:
    machine.mount("252:0")
    machine.failing.add("mount")
    if is_mounted:
        machine.on_settle = lambda: machine.mount("240:17")
        assert machine.released("data") == "vdb1"
    else:
        with refused(HostError, "program.failed"):
            machine.released("data")
    assert (machine.is_released, machine.is_mounted) == (True, is_mounted)


@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_after_a_power_cut_it_is_as_before_or_released_and_the_command_goes_on(
    machine: CreatedMachine, point: int
) -> None:
    if machine.is_cut(point):
        machine.boot()
        assert machine.is_usable
    if machine.has_superblock:
        assert machine.released() == "vdb1"
    assert machine.is_released


@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_a_killed_release_goes_on_without_a_boot(machine: CreatedMachine, point: int) -> None:
    machine.is_cut(point)
    machine.wait(lambda: True, 0)  # the kernel ends what it was told to stop
    assert machine.is_usable
    if machine.has_superblock:
        assert machine.released() == "vdb1"
    assert (machine.is_released, machine.sysfs.exists("sys/block/vdb/vdb1")) == (True, True), "no boot is needed"


def test_a_kernel_that_reads_no_table_of_a_claimed_volume_is_asked_again(machine: CreatedMachine) -> None:
    machine.failing.add("ioctl")
    assert machine.released() == "vdb1"
    assert ["blockdev", "--rereadpt", str(machine.sysfs.path("dev/vdb"))] in machine.ran


@pytest.mark.parametrize("survivors", [(), (0,), (superblock.OFFSET,), (0, superblock.OFFSET)])
def test_the_superblock_goes_only_when_the_table_is_on_the_disk(
    machine: CreatedMachine, monkeypatch: pytest.MonkeyPatch, survivors: tuple[int, ...]
) -> None:
    """Of what was written since the last fsync, a power cut leaves any part: here the writes to these places."""
    unsynced: list[tuple[bytes, int]] = []
    pwrite = os.pwrite

    def write(_: int, data: bytes, at: int) -> int:
        unsynced.append((bytes(data), at))
        return len(data)

    def sync(descriptor: int) -> None:
        machine.change()
        while unsynced:
            pwrite(descriptor, *unsynced.pop(0))

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fsync", sync)
    for point in range(MOST_CHANGES):
        machine.put(0, machine.before)
        machine.boot()
        if machine.is_cut(point):
            for data, at in unsynced:
                machine.put(at, data if at in survivors else b"")
            machine.boot()
        unsynced.clear()
        assert machine.is_usable, point


def test_a_failed_write_starts_the_adaptive_device_again(
    machine: CreatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.mount("252:0")

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pwrite", fail)
    with refused(HostError, "release.write"):
        machine.released("data")
    assert (machine.is_as_before, machine.runs, machine.is_mounted) == (True, True, True)


def test_a_superblock_that_cannot_be_erased_keeps_its_volume_and_the_table_goes(
    machine: CreatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def write(descriptor: int, data: bytes, offset: int) -> int:
        if offset == superblock.OFFSET:
            raise OSError(5, "Input/output error")
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write)
    with refused(HostError, "release.write"):
        machine.released()
    assert (machine.is_as_before, machine.runs) == (True, True)
    assert not machine.sysfs.exists("sys/block/vdb/vdb1")


def test_a_table_that_cannot_be_taken_back_leaves_the_volume_to_nobody(
    machine: CreatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, table = os.pwrite, machine.planned().table

    def write(descriptor: int, data: bytes, offset: int) -> int:
        if data != table:
            raise OSError(5, "Input/output error")
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write)
    with refused(HostError, "release.write"):
        machine.released()
    assert (machine.is_usable, machine.runs) == (True, False)


def test_who_gives_up_waiting_has_the_device_again(machine: CreatedMachine) -> None:
    wait, found = machine.wait, machine.planned()

    def interrupted(condition: Callable[[], bool], seconds: float) -> bool:
        if seconds == release_created.STOP_S:
            wait(condition, seconds)
            raise KeyboardInterrupt
        return wait(condition, seconds)

    with pytest.raises(KeyboardInterrupt):
        release_created.Releaser(machine.sysfs, machine.run, interrupted, machine.show).release(found)
    assert (machine.is_as_before, machine.runs) == (True, True)


def _interrupted(machine: CreatedMachine) -> None:
    """The power is cut between the two writes, and bcache has not been given the volume."""
    machine.put(0, machine.planned().table)
    machine.power_off()
    machine.scan_partitions()


def test_a_device_that_is_started_again_has_no_table(machine: CreatedMachine) -> None:
    _interrupted(machine)
    release_created.register(str(machine.sysfs.path("dev/vdb")), machine.sysfs, machine.wait, machine.show)
    assert (machine.is_as_before, machine.runs) == (True, True)
    assert not machine.sysfs.exists("sys/block/vdb/vdb1")


def test_one_whose_partition_is_in_use_is_not_started(machine: CreatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    _interrupted(machine)
    before, opened = machine.volume, os.open

    def claimed(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_EXCL and path == machine.sysfs.path("dev/vdb"):
            raise OSError(16, "Device or resource busy")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", claimed)
    with refused(DeviceBusyError, "release.busy"):
        release_created.register(str(machine.sysfs.path("dev/vdb")), machine.sysfs, machine.wait, machine.show)
    assert (machine.volume, machine.runs) == (before, False)


def test_udev_does_not_look_while_it_is_started_again(machine: CreatedMachine) -> None:
    machine.power_off()
    node, wait, could_lock = machine.sysfs.path("dev/vdb"), machine.wait, []

    def looked(condition: Callable[[], bool], seconds: float) -> bool:
        if machine.sysfs.read("sys/fs/bcache/register_quiet"):
            descriptor = os.open(node, os.O_RDONLY)
            could_lock.append(locks.try_lock(descriptor))
            os.close(descriptor)
        return wait(condition, seconds)

    release_created.register(str(node), machine.sysfs, looked, machine.show)
    assert (could_lock, machine.runs) == ([False], True)


@pytest.mark.parametrize("first", ["empty", "boot sector", "another's table"])
def test_what_no_release_has_written_is_not_taken_back(machine: CreatedMachine, first: str) -> None:
    size = machine.offset + len(machine.data) // SECTOR
    table = partition_table.render(SET, offset_sectors=machine.offset, size_sectors=size, block_bytes=512)
    machine.put(0, {"empty": b"", "boot sector": b"\xeb" * 510 + b"\x55\xaa", "another's table": table}[first])
    before = machine.volume
    assert partition_table.why_no_cache(machine.sysfs, "vdb") == ""
    machine.power_off()
    release_created.register(str(machine.sysfs.path("dev/vdb")), machine.sysfs, machine.wait, machine.show)
    assert (machine.volume, machine.runs) == (before, True)


def test_a_volume_with_the_table_gets_no_cache(machine: CreatedMachine) -> None:
    assert partition_table.why_no_cache(machine.sysfs, "vdb") == ""
    machine.put(0, machine.planned().table)
    assert partition_table.why_no_cache(machine.sysfs, "vdb")
    machine.released()
    assert partition_table.why_no_cache(machine.sysfs, "vdb") == ""


def test_the_partition_shows_although_the_table_could_not_be_read_at_once(machine: CreatedMachine) -> None:
    machine.failing |= {"ioctl", "blockdev"}
    with refused(HostError, "release.unread"):
        machine.released()
    machine.boot()
    assert (machine.is_released, machine.sysfs.exists("sys/block/vdb/vdb1")) == (True, True)


# --- what is refused -------------------------------------------------------------------------------------------


def _lay(name: str, text: str) -> Callable[[CreatedMachine], None]:
    return lambda machine: machine.lay(name, text)


def _put(at: int, data: bytes) -> Callable[[CreatedMachine], None]:
    return lambda machine: machine.put(at, data)


def _state(number: int) -> Callable[[CreatedMachine], None]:
    def change(machine: CreatedMachine) -> None:
        fields = list(superblock.LAYOUT.unpack_from(machine.volume, superblock.OFFSET))
        fields[7] = number << superblock.STATE_SHIFT
        body = superblock.LAYOUT.pack(*fields)[8:]
        machine.put(superblock.OFFSET, superblock.CHECKSUM.pack(superblock.crc64(body)) + body)

    return change


def _other_uuid(machine: CreatedMachine) -> None:
    block = superblock.render_backing(UUID(SET), UUID(SET), block_bytes=512, data_offset_sectors=machine.offset)
    machine.put(superblock.OFFSET, block)


def _copy(machine: CreatedMachine) -> None:
    machine.disk("vdc", 48, "copy0123456789abcdef", machine.volume)


def _without_adaptive(machine: CreatedMachine) -> None:
    machine.sysfs.path("sys/block/vdb/bcache/dev").unlink()


REFUSED: dict[str, tuple[Callable[[CreatedMachine], None], type[ElastioError], str]] = {
    "clean": (_lay("sys/block/vdb/bcache/state", "clean"), NotOursError, "release.cache"),
    "dirty": (_lay("sys/block/vdb/bcache/state", "dirty"), NotOursError, "release.cache"),
    "attached": (lambda machine: machine.link("sys/block/vdb/bcache/cache", "set"), NotOursError, "release.cache"),
    "cache missing": (_without_adaptive, NotOursError, "release.cache"),
    "superblock clean": (_state(1), NotOursError, "release.cache"),
    "superblock dirty": (_state(2), NotOursError, "release.cache"),
    "mounted elsewhere": (lambda machine: machine.mount("252:0"), DeviceBusyError, "release.busy"),
    "held": (_lay("sys/block/bcache0/holders/dm-9", ""), DeviceBusyError, "release.busy"),
    "damaged superblock": (_put(STATE_AT + 40, b"?"), NotOursError, "superblock.unsound"),
    "no superblock": (_put(superblock.OFFSET, bytes(64)), NotOursError, "superblock.unsound"),
    "other superblock": (_other_uuid, NotOursError, "release.other"),
    "boot sector": (_put(0, b"\xeb"), NotOursError, "release.first_sector"),
    "grown": (_lay("sys/block/vdb/size", "999999"), NotOursError, "release.size"),
    "other blocks": (_lay("sys/block/vdb/queue/logical_block_size", str(2**21)), NotOursError, "release.large"),
    "other bytes": (lambda machine: machine.put(len(machine.volume) - 1, b"?"), NotOursError, "release.differs"),
    "copy": (_copy, NotOursError, "release.copy"),
    "fstab": (_lay("etc/fstab", "/dev/bcache0 /data ext4 nofail 0 2\n"), ConfigError, "release.fstab"),
    "crypttab": (_lay("etc/crypttab", "# x\nsafe /dev/bcache/by-uuid/1 none\n"), ConfigError, "release.fstab"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_proved_is_refused(machine: CreatedMachine, case: str) -> None:
    change, error, code = REFUSED[case]
    change(machine)
    before = machine.volume
    with refused(error, code):
        machine.released()
    assert (machine.volume, machine.changes) == (before, 0)


@pytest.mark.parametrize("source", ["UUID=1", "LABEL=", "LABEL=other", "/dev/vdc"])
def test_what_no_line_of_fstab_would_mount_again_is_refused(machine: CreatedMachine, source: str) -> None:
    machine.mount("252:0")
    machine.found["bcache0"]["LABEL"] = "data"
    machine.lay(
        "etc/fstab", f"UUID={FILESYSTEM} /elsewhere ext4 nofail 0 2\n{source} {machine.place} ext4 nofail 0 2\n"
    )
    with refused(ConfigError, "release.fstab"):
        machine.released("data")
    assert (machine.is_as_before, machine.is_mounted) == (True, True)


def test_a_line_of_fstab_may_name_its_label(machine: CreatedMachine) -> None:
    machine.mount("252:0")
    machine.found["bcache0"]["LABEL"] = "data"
    machine.lay("etc/fstab", f'LABEL="data" {machine.place} ext4 defaults 0 2\n')
    assert machine.released("data") == "vdb1"


def test_a_volume_that_bcache_still_has_open_is_waited_for(
    machine: CreatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel removes bcache's files some time before it closes the device."""
    answers = ["is in use", ""]
    monkeypatch.setattr(release_created, "unnamed_use", lambda _: answers.pop(0))
    wait = machine.wait

    def polled(condition: Callable[[], bool], seconds: float) -> bool:
        return wait(condition, seconds) or wait(condition, seconds)

    machine.wait = polled  # type: ignore[method-assign]
    assert (machine.released(), answers) == ("vdb1", [])


def test_a_volume_that_stays_in_use_is_started_again(machine: CreatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_created, "unnamed_use", lambda _: "is in use")
    with refused(DeviceBusyError, "release.stop"):
        machine.released()
    assert (machine.is_as_before, machine.runs) == (True, True)


@pytest.mark.parametrize("kind", [None, "linux_raid_member", "zfs_member", "swap"])
def test_what_is_not_recognized_by_its_begin_alone_is_refused(machine: CreatedMachine, kind: str | None) -> None:
    machine.found = {"bcache0": {"TYPE": kind, "UUID": BACKING}} if kind else {}
    with refused(NotOursError, "release.content"):
        machine.released()
    assert machine.is_as_before


def test_a_partition_and_a_volume_above_2_tib_are_refused(machine: CreatedMachine) -> None:
    with refused(NotOursError, "release.large"):
        partition_table.render(BACKING, offset_sectors=16, size_sectors=2**32 + 16, block_bytes=512)
    assert partition_table.render(BACKING, offset_sectors=16, size_sectors=2**32 + 15, block_bytes=512)
    with refused(NotOursError, "release.large"):
        partition_table.render(BACKING, offset_sectors=17, size_sectors=2**20, block_bytes=4096)
    with refused(NotOursError, "release.partition"):
        release_created._require_disk("vda1", machine.sysfs)


@pytest.mark.parametrize("case", ["clean", "attached", "held", "other superblock", "other bytes"])
def test_what_has_changed_since_the_question_is_refused(machine: CreatedMachine, case: str) -> None:
    found = machine.planned()
    change, error, code = REFUSED[case]
    change(machine)
    before = machine.volume
    with refused(error, code):
        release_created.Releaser(machine.sysfs, machine.run, machine.wait, machine.show).release(found)
    assert (machine.volume, machine.runs) == (before, True)


def test_a_cache_that_was_attached_just_before_the_stop_is_found_on_the_disk(machine: CreatedMachine) -> None:
    found = machine.planned()
    _state(1)(machine)
    before = machine.volume
    with refused(NotOursError, "release.cache"):
        release_created.Releaser(machine.sysfs, machine.run, machine.wait, machine.show).release(found)
    assert (machine.volume, machine.runs) == (before, True)
