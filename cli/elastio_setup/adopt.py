"""Adopt a volume, compose it at boot, and release it: the steps, each repeatable, in an order that a crash may end.

Theory of operation. The volume itself is not written to, but for its first sectors while it may have a cache
(`tombstone`), and a head behind its filesystem (`head_behind`). The record of the volume is on disk before anything is
changed, so whatever ends the command, the next boot or the next command knows what was begun:

    adopting    head made and written, udev hides the volume, composed, registered    after a crash: released, or, where
                the adaptive device is in use by then, composed
    composed    at every boot composed again, when volume and head are there
    releasing   stopped, removed, head erased, its logical volume removed    after a crash: released to the end
    no record   the volume is mounted as it always was

Only one command or unit changes anything at a time: a lock below /run. While a volume has a record, udev shows it to
nobody: systemd mounts the filesystem by its UUID on the adaptive device or not at all. (mount(8) searches all devices.
The composed device claims the volume; without it the raw volume may be mounted, which loses nothing without a cache.)
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

from elastio.config.paths import DEFAULT_STATE_DIR, GUARDS
from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host import blockdev, composed, heads, recompose, superblock, tombstone
from elastio.host.commands import Run
from elastio.host.heads import DATA_OFFSET_SECTORS, PHYSICAL_VOLUME, Head, Volume
from elastio.host.sysfs import Sysfs, Wait, wait_for
from elastio.host.usage import in_use
from elastio_setup import adopted_record as records
from elastio_setup import head_behind, head_volume
from elastio_setup.adopt_contents import require_sound
from elastio_setup.adopt_plan import AdoptPlan, require_same_head
from elastio_setup.adopted_record import Record, Step
from elastio_setup.adopted_volume import find, find_head, may_have_piece, replaced, require_one, serials, with_uuid
from elastio_setup.filesystem import unmounted
from elastio_setup.physical_volume import require_shown

LOCK_S = 120.0
APPEAR_S = 180.0
POLL_S = 2.0
SETTLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Adopter:
    """Does the steps on the machine below `sysfs`. `is_replaced`: the volume to release may have another filesystem."""

    sysfs: Sysfs
    run: Run
    wait: Wait = wait_for
    sleep: Callable[[float], None] = time.sleep
    is_replaced: bool = False

    def adopt(self, plan: AdoptPlan) -> str:
        """Returns `bcacheN`. Raises what the failed step raised; then it was undone, and mounted again."""
        # The check of the filesystem may take an hour, and boosts of other volumes need the lock: it comes first.
        with unmounted(plan.place, self.sysfs, self.run):
            if plan.place is not None:
                self._require_unused(plan.device)
                require_sound(plan.device, plan.volume, self.sysfs, self.run)
            with recompose.locked(self.sysfs, self.wait, LOCK_S):
                if records.load(self.sysfs, plan.volume.uuid) is not None:
                    raise DeviceBusyError("the volume is being adopted by another command", code="adopt.begun")
                self._require_unused(plan.device)
                return self._adopt(plan)

    def _adopt(self, plan: AdoptPlan) -> str:
        extents = plan.extents
        group_uuid = extents.group_uuid if extents else ""
        record = Record(plan.head, Step.ADOPTING, plan.head_device, plan.head_serials, group_uuid)
        records.save(self.sysfs, record)
        try:
            if extents is not None:
                made = head_volume.make(self.sysfs, extents, plan.head, self.run)
                record = replace(record, head_device=made)
            self._write_head(record, plan)
            self.announce(plan.device)
            adaptive = self.compose(record)
            if record.head.keeps_tombstone:
                require_shown(adaptive, self.sysfs, self.run)
            records.save(self.sysfs, replace(record, step=Step.COMPOSED))
        except (ElastioError, KeyboardInterrupt):
            with contextlib.suppress(ElastioError):  # the first error is the one that matters; `release` does it again
                self._release(record)
            raise
        return adaptive

    def _write_head(self, record: Record, plan: AdoptPlan) -> None:
        if plan.extents is None:
            # The filesystem's check may have taken an hour since the plan was made.
            require_same_head(plan, self.sysfs, self.run)
        names = (UUID(record.head.backing_uuid), uuid4())
        block = superblock.render_backing(*names, block_bytes=plan.block_bytes, data_offset_sectors=DATA_OFFSET_SECTORS)
        node = self.sysfs.path(f"dev/{record.head_device}")
        heads.write(node, record.head, block, partial(tombstone.require_node, self.sysfs, record.head_device))

    def _require_unused(self, device: str) -> None:
        found = in_use(self.sysfs, device)
        if found:
            text = f"/dev/{device} {', '.join(map(str, found))} after it was unmounted: nothing was changed"
            raise DeviceBusyError(text, code="adopt.used")

    def compose(self, record: Record) -> str:
        """By whoever has the lock. Returns `bcacheN`. Raises HostError that says what is missing, or NotOursError."""
        device, head_device = self.both_there(record)
        recompose.settle(self.sysfs, composed.name_of(record.head))
        composed.require_unused(self.sysfs, record.head, device)
        # udev shows a volume again that was open for writing, and starts the unit: this one may fail before that.
        with self.pair(record, device, head_device, os.O_RDONLY) as pair:
            has_tombstone, head, is_complete = pair.has_tombstone(), pair.head, pair.is_complete()
        if not is_complete:
            with self.pair(record, device, head_device) as pair:
                has_tombstone = pair.completed()
        self.require_no_older(record, device, head_device, has_tombstone=has_tombstone)
        if head.keeps_tombstone and not has_tombstone and composed.find(self.sysfs, head) is None:
            has_tombstone = self._first_written(record, device, head_device, head)
        devices = (head_device, device, self.run, self.wait)
        adaptive = composed.compose(self.sysfs, head, *devices, has_tombstone=has_tombstone)
        self._settle()
        if adaptive is None:
            raise HostError(self._waiting(record, head_device), code="cache.missing")
        return adaptive

    def _first_written(self, record: Record, device: str, head_device: str, label: Head) -> bool:
        """The tombstone that stays is written, before anybody can see the contents twice."""
        if label.sequence > 1:  # the head has the first sectors, and they are nowhere else
            text = (
                f"the tombstone of /dev/{device} was overwritten, or the volume reverted to a copy: nothing was changed"
            )
            raise NotOursError(f"{text}; release it, if it can be", code="tombstone.missing")
        with self.pair(record, device, head_device) as pair:
            pair.write()
        return True

    def require_no_older(self, record: Record, device: str, head_device: str, *, has_tombstone: bool) -> None:
        """Raises NotOursError if the head names a cache, and the volume has no tombstone: it may have been reverted."""
        block = heads.superblock_of(self.sysfs.path(f"dev/{head_device}"), record.head)
        if not has_tombstone and not superblock.is_without_cache(block):
            text = f"the head names a cache, and /dev/{device} has no tombstone: it may be an older copy"
            raise NotOursError(f"{text}; nothing was changed", code="tombstone.missing")

    def both_there(self, record: Record) -> tuple[str, str]:
        """The volume and the device with the head. Raises HostError for one that is not there."""
        device, head_device = self.both(record)
        if device is not None:
            head_behind.require_there(self.sysfs, device, record.head, head_device)
        if device is None or head_device is None:
            missing, serials = ("head", record.head_serials) if device else ("volume", (record.head.volume.serial,))
            shown = f" (serial {', '.join(serials)})" if any(serials) else ""
            text = f"the {missing} of the adopted volume {record.uuid} is not there: attach its disk{shown}"
            raise HostError(text, code=f"{missing}.missing")
        return device, head_device

    def _waiting(self, record: Record, head_device: str) -> str:
        found = superblock.parse(heads.superblock_of(self.sysfs.path(f"dev/{head_device}"), record.head))
        noted = self.sysfs.read_or(f"{DEFAULT_STATE_DIR}/{GUARDS}/{record.head.backing_uuid}".lstrip("/"), "")
        needed = f"cache set {found.set_uuid if found else 'unknown'}{f', {noted}' if noted else ''}"
        return f"the adopted volume {record.uuid} is composed and waits for its cache ({needed}): attach that"

    def pair(
        self, record: Record, device: str, head_device: str, flags: int = os.O_RDWR
    ) -> AbstractContextManager[tombstone.Pair]:
        label = heads.read(self.sysfs.path(f"dev/{head_device}"), record.head.first_sector)
        return tombstone.Pair.opened(self.sysfs, label or record.head, device, head_device, flags)

    def both(self, record: Record) -> tuple[str | None, str | None]:
        device = find(self.sysfs, record.head.volume, self.run)
        head_device = find_head(self.sysfs, record.head, device)
        if device is not None and head_device is None and record.group_uuid:
            head_volume.activate(self.sysfs, record, self.run)
            head_device = find_head(self.sysfs, record.head, device)
        return device, head_device

    # --- at boot -------------------------------------------------------------------------------------------

    def assemble(self, uuid: str) -> str:
        """Do what the record says: compose, or release what a crash left half done. Returns `bcacheN`, or nothing.

        Waits APPEAR_S for volume and head. Raises ElastioError.
        """
        # Others must not have to wait for a volume that does not come.
        # Each change of the volume starts the unit: a boost must not wait for its looks at every disk.
        if (running := self._running(uuid)) is not None:
            self._note_disks(uuid)
            return running
        self.wait(partial(self._is_there, uuid), APPEAR_S)
        with recompose.locked(self.sysfs, self.wait, LOCK_S):
            record = records.load(self.sysfs, uuid)
            if record is None:
                return ""
            if record.step is Step.ADOPTING and self._is_used(record):  # nothing but this was left to do
                record = replace(record, step=Step.COMPOSED)
                records.save(self.sysfs, record)
            if record.step is not Step.COMPOSED:
                self._release(record, is_boot=True)
                return ""
            return self.compose(record)

    def _is_used(self, record: Record) -> bool:
        adaptive = composed.adaptive_of(self.sysfs, record.head)
        return adaptive is not None and bool(in_use(self.sysfs, adaptive))

    def _running(self, uuid: str) -> str | None:
        """The adaptive device of a volume that is composed, and not suspended."""
        record = records.load(self.sysfs, uuid)
        if record is None or record.step is not Step.COMPOSED or recompose.is_suspended(self.sysfs, record.head):
            return None
        return composed.adaptive_of(self.sysfs, record.head)

    def _note_disks(self, uuid: str) -> None:
        """A logical volume that is composed may be moved to another disk, or extended onto one: it is the same volume.

        A disk that is only missing stays noted.
        """
        record = records.load(self.sysfs, uuid)
        volume = self._below(record) if record is not None and record.head.volume.mapped else None
        shown = "+".join(serials(self.sysfs, volume)) if volume else ""
        if record is None or shown in ("", record.head.volume.serial):
            return
        there = {disk.serial for disk in blockdev.disks(self.sysfs)}
        if not there.issuperset(record.head.volume.serial.split("+")):
            return
        with recompose.locked(self.sysfs, self.wait, LOCK_S):
            record = records.load(self.sysfs, uuid)
            if record is not None:
                volume_now = replace(record.head.volume, serial=shown)
                records.save(self.sysfs, replace(record, head=replace(record.head, volume=volume_now)))

    def _below(self, record: Record) -> str | None:
        """The volume by the table of the composed device, wherever its disks are, and whatever is on it now."""
        device = composed.find(self.sysfs, record.head)
        return (composed.volume_below(self.sysfs, device) or None) if device is not None else None

    def _volume(self, record: Record) -> str | None:
        """Raises NotOursError, if it is not composed, for a copy."""
        found = self._below(record) or find(self.sysfs, record.head.volume, self.run)
        return found or (replaced(self.sysfs, record.head.volume, self.run) if self.is_replaced else None)

    def _is_there(self, uuid: str) -> bool:
        """Each look reads every disk: not more often than every POLL_S."""
        record = records.load(self.sysfs, uuid)
        if record is None or record.step is not Step.COMPOSED:
            return True
        try:
            device, head_device = self.both(record)
            is_there = device is not None and (head_device is not None or record.head.first_sector > 0)
        except HostError:  # the serial may not show yet, or another volume group is not whole yet
            is_there = False
        if not is_there:
            self.sleep(POLL_S)
        return is_there

    # --- release -------------------------------------------------------------------------------------------

    def release(self, record: Record, place: Path | None) -> None:
        """Undo an adoption. `place`: where it is mounted and will be again. Raises ElastioError."""
        with unmounted(place, self.sysfs, self.run), recompose.locked(self.sysfs, self.wait, LOCK_S):
            current = records.load(self.sysfs, record.uuid)
            if current is None:
                raise ConfigError(f"no volume {record.uuid} is adopted", code="release.none")
            self._release(current)

    def require_releasable(self, record: Record, place: Path | None) -> None:
        """Raises ElastioError for what `release` would refuse; whether it is in use is asked if it has no `place`."""
        self._releasable(record, is_mounted=place is not None)

    def _releasable(self, record: Record, *, is_mounted: bool = False) -> tuple[str | None, str]:
        """The device with the head, and the volume if it has its tombstone."""
        # What a killed lvcreate has not wiped is no copy: it goes.
        made = head_volume.device_of(self.sysfs, record, self.run) if record.group_uuid else None
        require_one(self.sysfs, record.uuid, made, self.run)
        head_device = self._head_device(record)
        if is_mounted:
            composed.require_no_cache(self.sysfs, record.head)
        else:
            composed.require_free(self.sysfs, record.head)
        if head_device is not None:
            composed.require_names_none(self.sysfs, record.head, head_device)
        if record.group_uuid:
            head = head_volume.removable(self.sysfs, record, head_device, self.run)
            if head is not None and head_volume.kernel_name(self.sysfs, head) is None:
                self._require_unused_head(record)
        return head_device, self._covered(record, head_device)

    def _release(self, record: Record, *, is_boot: bool = False) -> None:
        recompose.settle(self.sysfs, composed.name_of(record.head))
        if record.group_uuid and record.step is not Step.ADOPTING:
            head_volume.activate(self.sysfs, record, self.run)
        record, below = self._regrouped(record), self._below(record)
        try:
            head_device, covered = self._releasable(record)
            if record.step is Step.COMPOSED:
                records.save(self.sysfs, replace(record, step=Step.RELEASING))
            composed.take_apart(self.sysfs, record.head, self.run, self.wait)
            if head_device is not None:
                composed.require_names_none(self.sysfs, record.head, head_device)  # nobody can attach one any more
        except NotOursError as error:
            if error.code == composed.NAMES_CACHE:  # it cannot be released, so a boot has to compose it
                records.save(self.sysfs, replace(record, step=Step.COMPOSED))
            raise
        # Behind another filesystem than the head's own nobody can tell what that has of its place.
        if head_device is not None and (covered or not (self.is_replaced and record.head.first_sector)):
            self._erase(record, head_device, covered)
        if record.group_uuid:
            head_volume.remove(self.sysfs, record, self.run)
        shown = sorted({*with_uuid(self.sysfs, record.uuid, self.run), *([below] if below else [])})
        for device in shown:
            # What was read of it while it was composed may be older than what was written; who sees it may mount it.
            self.run(["blockdev", "--flushbufs", str(self.sysfs.path(f"dev/{device}"))], timeout_s=SETTLE_S)
        records.delete(self.sysfs, record)
        for device in shown:
            self.announce(device, record.head.volume if is_boot else None)

    def _erase(self, record: Record, head_device: str, covered: str) -> None:
        if covered:
            with self.pair(record, covered, head_device) as pair:
                pair.remove()
        if not head_behind.is_taken(self.sysfs, head_device, record.head):  # else the filesystem may be there
            node = self.sysfs.path(f"dev/{head_device}")
            heads.erase(node, record.head, partial(tombstone.require_node, self.sysfs, head_device))

    def _regrouped(self, record: Record) -> Record:
        """With the group in which the head is now: its own may have been merged into that (vgmerge(8))."""
        device = find_head(self.sysfs, record.head, None) if record.group_uuid else None
        if device is None or head_volume.device_of(self.sysfs, record, self.run) is not None:
            return record
        group_uuid = head_volume.group_of(self.sysfs, record.head, device, self.run)
        return replace(record, group_uuid=group_uuid or record.group_uuid)

    def _require_unused_head(self, record: Record) -> None:
        """Raises HostError for a head that is not active, and may have been used: nobody can tell what is on it.

        LVM may refuse to activate it, and succeed (lvchange(8), activation skip; lvm.conf(5), volume_list). The volume
        shows whether it was used.
        """
        device = find(self.sysfs, record.head.volume, self.run) if record.step is Step.ADOPTING else None
        if device is None or tombstone.read(self.sysfs.path(f"dev/{device}")) is not None:
            tag = head_volume.tag_of(record.head)
            text = f"the head, the logical volume with the tag {tag}, is not active: activate it (lvchange(8))"
            raise HostError(f"{text}; nothing was changed", code="head.inactive")

    def _covered(self, record: Record, head_device: str | None) -> str:
        """The volume, if it has its tombstone; else empty. Raises NotOursError for a copy, HostError without the head.

        The head has its first sectors. If its label says that there may be a tombstone, the volume has to be there.
        """
        volume = self._volume(record) if may_have_piece(self.sysfs, record.head, head_device) else ""
        if volume is None:
            text = f"the head may have the first sectors of the adopted volume {record.uuid}, which is not there"
            raise HostError(f"{text}: attach it, or see --replaced", code="volume.missing")
        found = {*with_uuid(self.sysfs, record.uuid, self.run), volume} - {""}  # it may have appeared since
        if all(tombstone.read(self.sysfs.path(f"dev/{device}")) is None for device in found):
            recompose.require_not_overwritten(self.sysfs, composed.find(self.sysfs, record.head) or "", lambda: False)
            return ""
        device = self._volume(record) or ""
        if head_device is None:
            text = f"the first sectors of /dev/{device} are on the head of the adopted volume {record.uuid}: attach it"
            raise HostError(text, code="head.missing")
        with self.pair(record, device, head_device, os.O_RDONLY) as pair:
            return device if pair.has_tombstone() else ""

    def _head_device(self, record: Record) -> str | None:
        """The device with the head, also before it has its label; None if it is not there, or cannot be read."""
        known: str | None = record.head_device
        if record.head.first_sector:
            known = self._volume(record)
        elif record.group_uuid:
            known = head_volume.device_of(self.sysfs, record, self.run)
        found = find_head(self.sysfs, record.head, known)
        if found is None and known and self.sysfs.exists(f"sys/class/block/{known}"):
            with contextlib.suppress(HostError):
                written = superblock.parse(heads.superblock_of(self.sysfs.path(f"dev/{known}"), record.head))
                if written is not None and written.uuid == record.head.backing_uuid:
                    return known
        return found

    # --- around --------------------------------------------------------------------------------------------

    def announce(self, device: str, volume: Volume | None = None) -> None:
        """Have udev see the volume as the record says, and wait for it.

        `volume`: at a boot, when LVM is to activate what is on it: it does so only for what is added (69-lvm.rules).
        """
        node, is_added = str(self.sysfs.path(f"dev/{device}")), volume and volume.filesystem == PHYSICAL_VOLUME
        action = "add" if is_added else "change"
        self.run(["udevadm", "trigger", f"--action={action}", f"--name-match={node}"], timeout_s=SETTLE_S)
        self._settle()

    def _settle(self) -> None:
        self.run(["udevadm", "settle", f"--timeout={SETTLE_S:.0f}"], timeout_s=SETTLE_S + 5)
