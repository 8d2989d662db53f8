"""An adopted volume without its cache, head or record, or with a copy in its place: it stays down, and comes up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host import heads, superblock
from elastio.host.heads import BLOCK_BYTES, CONTENT_SECTOR, SAVED_SECTOR
from elastio.units import MIB, SECTOR
from elastio_setup import adopted_record, device_checks
from elastio_setup.adopted_again import recorded_again
from elastio_setup.adopted_record import Step
from elastio_setup.check_result import Machine
from tests.fixtures.errors import refused

from . import tombstones
from .adopt_machine import UUID, AdoptMachine
from .lvm_machine import LvmMachine
from .tombstones import record

RECORD = f"etc/elastio/adopted/{UUID}"
STATE_AT = CONTENT_SECTOR * SECTOR + superblock.OFFSET + superblock.LAYOUT.size - 104
HEAD_SERIAL, VOLUME_SERIAL = "head0123456789abcdef", "volume0123456789abcd"


@pytest.fixture
def machine(tmp_path: Path) -> AdoptMachine:
    return tombstones.adopted(tmp_path)


@pytest.fixture
def boosted(machine: AdoptMachine) -> AdoptMachine:
    """It has its tombstone, and the head names a dirty cache. The power went."""
    tombstones.write(machine)
    put(machine, "vdh", STATE_AT, (2 << superblock.STATE_SHIFT).to_bytes(8, "little"))
    machine.power_off()
    return machine


def put(machine: AdoptMachine, name: str, at: int, data: bytes) -> None:
    with machine.sysfs.path(f"dev/{name}").open("r+b") as file:
        file.seek(at)
        file.write(data)


def codes(machine: AdoptMachine) -> list[str]:
    return [result.code for result in device_checks.adopted(Machine(machine.sysfs, machine.run))]


# --- at boot -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["0d9e4f3a-9c01-4c36-8b1d-2d3e0b6f4c1e", "0d9e4f3a-9c01-4c36-8"])
def test_a_disk_that_shows_its_serial_in_another_length_is_the_same(tmp_path: Path, known: str) -> None:
    """virtio-blk shows 20 characters where virtio-scsi shows the whole UUID: the server is another one."""
    serials = {known, "0d9e4f3a-9c01-4c36-8b1d-2d3e0b6f4c1e", "0d9e4f3a-9c01-4c36-8"} - {known}
    machine = AdoptMachine(tmp_path)
    machine.lay("sys/block/vdb/serial", known)
    tombstones.adopt(machine, heads.SAVED_SECTORS)
    tombstones.write(machine)
    machine.power_off()
    machine.lay("sys/block/vdb/serial", "1d9e4f3a-9c01-4c36-8")
    with refused(NotOursError, "volume.copy"):
        machine.adopter().assemble(UUID)
    machine.lay("sys/block/vdb/serial", serials.pop())
    assert machine.adopter().assemble(UUID) == "bcache0"
    machine.adopter().release(record(machine), None)
    assert machine.is_as_before


def test_without_its_cache_it_waits_names_it_and_runs_when_it_is_there(boosted: AdoptMachine) -> None:
    boosted.waits = True
    boosted.lay(f"var/lib/elastio/attached/{record(boosted).head.backing_uuid}", "volume vol-1\n")
    done = []
    for _ in range(2):  # the unit tries again
        with refused(HostError, "cache.missing") as caught:
            boosted.adopter().assemble(UUID)
        assert "vol-1" in str(caught.value)
        done.append(boosted.changes)
    assert done[0] == done[1], "it is made and registered once"
    assert (codes(boosted), boosted.is_composed) == (["cache_missing"], False)
    boosted.run_adaptive()
    assert boosted.adopter().assemble(UUID) == "bcache0"
    assert codes(boosted) == [""]
    assert not tombstones.is_mountable(boosted)


@pytest.mark.parametrize(("name", "code", "serial"), [("vdh", "head", HEAD_SERIAL), ("vdb", "volume", VOLUME_SERIAL)])
def test_without_its_head_or_its_volume_it_stays_down_and_names_the_disk(
    boosted: AdoptMachine, name: str, code: str, serial: str
) -> None:
    node = boosted.sysfs.path(f"dev/{name}")
    content = node.read_bytes()
    node.write_bytes(bytes(len(content)))
    boosted.found.clear()
    with refused(HostError, f"{code}.missing") as caught:
        boosted.adopter().assemble(UUID)
    assert serial in str(caught.value)
    assert (codes(boosted), boosted.is_composed) == (["not_composed"], False)
    node.write_bytes(content)
    assert boosted.adopter().assemble(UUID) == "bcache0"
    assert tombstones.shown(boosted) == boosted.before


def _restored(machine: AdoptMachine) -> None:
    machine.lay("sys/block/vdb/serial", "restored0123456789ab")


def _restored_older(machine: AdoptMachine) -> None:
    """From a snapshot before the boost: a plain filesystem."""
    _restored(machine)
    machine.sysfs.path("dev/vdb").write_bytes(machine.before)


def _foreign(machine: AdoptMachine) -> None:
    machine.sysfs.path("dev/vdb").write_bytes(bytes(2 * MIB))
    machine.found["vdb"] = {"TYPE": "ext4", "UUID": UUID[::-1]}


@pytest.mark.parametrize(
    ("replace", "code"),
    [(_restored, "volume.copy"), (_restored_older, "volume.copy"), (_foreign, "volume.missing")],
)
def test_with_another_volume_in_its_place_it_stays_down_and_nothing_of_it_is_given_up(
    boosted: AdoptMachine, replace: Callable[[AdoptMachine], None], code: str
) -> None:
    volume, head = boosted.volume, boosted.head
    replace(boosted)
    for attempt in (
        lambda: boosted.adopter().assemble(UUID),
        lambda: boosted.adopter().release(record(boosted), None),
    ):
        with pytest.raises(HostError) as caught:
            attempt()
        assert caught.value.code in {code, "release.cache"}
    assert (boosted.head, boosted.records, boosted.is_composed) == (head, ["composed"], False)
    boosted.lay("sys/block/vdb/serial", VOLUME_SERIAL)
    boosted.found["vdb"] = {"TYPE": "ext4", "UUID": UUID}
    boosted.sysfs.path("dev/vdb").write_bytes(volume)
    assert boosted.adopter().assemble(UUID) == "bcache0"


@pytest.mark.parametrize("replace", [_restored, _restored_older, _foreign])
def test_a_head_that_may_have_the_first_block_of_another_volume_is_not_erased(
    machine: AdoptMachine, replace: Callable[[AdoptMachine], None]
) -> None:
    """The cache has left, and the tombstone is there still: the original has its first block on the head alone."""
    tombstones.write(machine)
    machine.power_off()
    head = machine.head
    replace(machine)
    with pytest.raises(HostError) as caught:
        machine.adopter().release(record(machine), None)
    assert caught.value.code in {"volume.copy", "volume.missing"}
    assert (machine.head, machine.records) == (head, ["composed"])


def test_a_snapshot_of_a_boosting_one_has_no_first_block_and_the_head_of_that_moment_has_it(
    boosted: AdoptMachine,
) -> None:
    """What is dirty in the cache neither of them has. They are restored to disks with other serials."""
    assert not tombstones.is_mountable(boosted)
    copy = (boosted.volume, boosted.head)
    saved = SAVED_SECTOR * SECTOR
    assert copy[1][saved:][:BLOCK_BYTES] == boosted.before[:BLOCK_BYTES]
    assert copy[0][BLOCK_BYTES:] == boosted.before[BLOCK_BYTES:]
    boosted.disk("vdc", 48, "copiedhead0123456789", copy[1])
    with refused(NotOursError, "head.ambiguous"):
        boosted.adopter().assemble(UUID)
    boosted.sysfs.path("dev/vdh").write_bytes(bytes(16 * MIB))
    _restored(boosted)
    with refused(NotOursError, "volume.copy"):
        boosted.adopter().assemble(UUID)


@pytest.mark.parametrize("state", [1, 2])
def test_a_volume_that_was_reverted_in_place_is_not_composed_with_its_cache(boosted: AdoptMachine, state: int) -> None:
    """A cloud keeps the serial then. What the cache has was written to a newer state: it would damage this one."""
    newer, head = boosted.volume, boosted.head
    put(boosted, "vdh", STATE_AT, (state << superblock.STATE_SHIFT).to_bytes(8, "little"))
    boosted.sysfs.path("dev/vdb").write_bytes(boosted.before)
    with refused(NotOursError, "tombstone.missing"):
        boosted.adopter().assemble(UUID)
    assert not boosted.sysfs.exists("sys/block/dm-0")
    assert boosted.volume == boosted.before
    boosted.sysfs.path("dev/vdb").write_bytes(newer)
    boosted.sysfs.path("dev/vdh").write_bytes(head)
    assert boosted.adopter().assemble(UUID) == "bcache0"


@pytest.mark.parametrize("step", [Step.ADOPTING, Step.RELEASING])
def test_a_boost_after_a_command_that_was_killed_is_composed_and_not_released(
    boosted: AdoptMachine, step: Step
) -> None:
    adopted_record.save(boosted.sysfs, replace(record(boosted), step=step))
    with refused(NotOursError, "release.cache"):
        boosted.adopter().assemble(UUID)
    assert boosted.records == ["composed"]
    assert boosted.adopter().assemble(UUID) == "bcache0", "the unit tries again"


@pytest.mark.parametrize("has_tombstone", [True, False])
def test_a_cache_that_was_attached_just_before_the_stop_is_found_on_the_head(
    machine: AdoptMachine, has_tombstone: bool
) -> None:
    if has_tombstone:
        tombstones.write(machine)
    volume, wait = machine.volume, machine.wait

    def attached(condition: Callable[[], bool], seconds: float) -> bool:
        if machine.sysfs.read_or("sys/block/dm-0/bcache/stop", ""):
            put(machine, "vdh", STATE_AT, (2 << superblock.STATE_SHIFT).to_bytes(8, "little"))
        return wait(condition, seconds)

    machine.wait = attached  # type: ignore[method-assign]
    with refused(NotOursError, "release.cache"):
        machine.adopter().release(record(machine), None)
    assert (machine.volume, machine.records) == (volume, ["composed"])
    assert heads.read(machine.sysfs.path("dev/vdh")) is not None


# --- the record ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_tombstone", [True, False])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_lost_record_is_written_again_and_the_volume_composed(
    machine: AdoptMachine, has_tombstone: bool, is_running: bool
) -> None:
    before = record(machine).head
    if has_tombstone:
        tombstones.write(machine)
    if is_running:
        machine.lay("sys/block/vdb/holders/dm-0", "")
    else:
        machine.power_off()
    machine.sysfs.path(RECORD).unlink()
    assert recorded_again(machine.adopter(), machine.sysfs.path("dev/vdh")) == "bcache0"
    found = record(machine)
    assert (found.head.uuid, found.head.volume, found.head_serials) == (before.uuid, before.volume, (HEAD_SERIAL,))
    assert found.step is adopted_record.Step.COMPOSED
    machine.sysfs.path("sys/block/vdb/holders/dm-0").unlink(missing_ok=True)
    machine.boot()
    assert tombstones.shown(machine) == machine.before
    if has_tombstone:
        tombstones.remove(machine)
    machine.adopter().release(record(machine), None)
    assert machine.is_as_before


def _erase_head(machine: AdoptMachine) -> None:
    machine.sysfs.path("dev/vdh").write_bytes(bytes(16 * MIB))


REFUSED: dict[str, tuple[Callable[[AdoptMachine], None], type[ElastioError], str]] = {
    "no head": (_erase_head, NotOursError, "head.none"),
    "damaged head": (lambda machine: put(machine, "vdh", 60, b"??"), NotOursError, "head.damaged"),
    "copy": (_restored, NotOursError, "volume.copy"),
    "no volume": (lambda machine: machine.found.clear(), HostError, "volume.missing"),
    "mounted": (lambda machine: machine.mount(), DeviceBusyError, "volume.used"),
    "cache": (lambda machine: put(machine, "vdh", STATE_AT, b"\xff" * 8), NotOursError, "tombstone.missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_record_is_not_written_for_what_cannot_be_composed(machine: AdoptMachine, case: str) -> None:
    machine.power_off()
    machine.sysfs.path(RECORD).unlink()
    change, error, code = REFUSED[case]
    change(machine)
    with refused(error, code):
        recorded_again(machine.adopter(), machine.sysfs.path("dev/vdh"))
    assert (machine.records, machine.is_composed) == ([], False)


def test_a_record_is_written_nowhere_else(machine: AdoptMachine) -> None:
    """The name is by a label, and by what is on a volume."""
    known = record(machine)
    for uuid in ("../fstab", "", ".", "a/b"):
        head = replace(known.head, volume=replace(known.head.volume, uuid=uuid))
        with refused(ConfigError, "record.name"):
            adopted_record.save(machine.sysfs, replace(known, head=head))
    assert machine.records == ["composed"]


def test_what_a_power_cut_left_of_a_record_goes_with_it(machine: AdoptMachine) -> None:
    """udev looks into every block device as long as the directory is there."""
    folder = machine.sysfs.path(RECORD).parent
    (folder / f".{UUID}.0a1b2c3d.new").write_text("{")
    machine.adopter().release(record(machine), None)
    assert not folder.exists()


def test_a_record_that_is_there_is_not_replaced(machine: AdoptMachine) -> None:
    before = machine.sysfs.read(RECORD)
    with refused(ConfigError, "record.there"):
        recorded_again(machine.adopter(), machine.sysfs.path("dev/vdh"))
    assert machine.sysfs.read(RECORD) == before


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("volume", ["plain", "tombstone", "inactive"])
def test_a_head_that_cannot_be_activated_may_have_the_only_first_block(tmp_path: Path, step: Step, volume: str) -> None:
    machine = LvmMachine(tmp_path)
    machine.adopter().adopt(machine.plan())
    if volume != "plain":
        tombstones.write(machine)
    adopted_record.save(machine.sysfs, replace(record(machine), step=step))
    machine.activates = machine.may_activate = False
    machine.power_off()
    if volume == "inactive":
        machine.deactivate(machine.logicals[0])
    if (step, volume) == (Step.ADOPTING, "plain"):
        machine.adopter().release(record(machine), None)  # it has never had a cache
        assert machine.is_as_before
        return
    with refused(HostError, "head.inactive"):
        machine.adopter().release(record(machine), None)
    if step is not Step.COMPOSED:
        with refused(HostError, "head.inactive"):
            machine.adopter().assemble(UUID)
    assert (machine.records, len(machine.made)) == ([step.value], 1)
