"""Release a backing device that was made on a blank volume: its filesystem stays where it is, and becomes a partition.

Theory of operation. Nothing has to be recorded, because each state on the disk can be used as it is:

    superblock                 the adaptive device, as before; what was begun has changed nothing
    superblock and table       the adaptive device or the partition, whichever is used first; it gets no cache
    table                      the partition: released

A command that was interrupted is given once more, or the machine is booted. What fails takes the table back before
bcache gets the volume again. The agent of the device does not run meanwhile. What is proved: no cache is attached, and
the superblock names none, also when bcache has stopped; the adaptive device shows the bytes that the partition will
show, to the end of the volume; what is on it is recognized by its begin alone, so nothing takes the whole volume for
it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host import blockdev, locks, partition_table, recompose, superblock, tombstone
from elastio.host.commands import Run
from elastio.host.sysfs import Sysfs, Wait, wait_for
from elastio.host.usage import UseKind, in_use, partitions, unnamed_use
from elastio.units import MIB, SECTOR, format_size
from elastio_setup import fstab
from elastio_setup.adopted_volume import probe, with_uuid
from elastio_setup.candidates import Candidate, all_candidates, choose
from elastio_setup.filesystem import unmounted
from elastio_setup.format_backing import name_of

# Recognized by their begin alone.
CONTENTS = ("ext4", "xfs", "btrfs", "crypto_LUKS", "LVM2_member")
TABLES = ("etc/fstab", "etc/crypttab")
BY_NODE = re.compile(r"^[^#\n]*?(/dev/bcache\S*)", re.MULTILINE)
LOCK_S, STOP_S, SETTLE_S, APPEAR_S = 120.0, 20.0, 60.0, 20.0


@dataclass(frozen=True, slots=True)
class Created:
    """A backing device and its adaptive device, by the kernel's names. `table`: the sector that is to be written."""

    device: str
    adaptive: str
    uuid: str
    content: str
    offset_sectors: int
    size_sectors: int
    table: bytes
    place: Path | None

    @property
    def shown(self) -> str:
        """What an operator has to know before."""
        around = f"unmount {self.place}, and mount it again by /etc/fstab\n" if self.place else ""
        size = format_size((self.size_sectors - self.offset_sectors) * SECTOR)
        return (
            f"/dev/{self.device}: {self.content} of {size} from byte {self.offset_sectors * SECTOR} on, as it is\n"
            f"its first sector gets a partition table, and bcache's superblock is erased\n{around}"
            f"afterwards the data is on a partition of /dev/{self.device}, and there is no /dev/{self.adaptive}"
        )


def plan(target: str, sysfs: Sysfs, run: Run) -> Created:
    """Check everything, and change nothing. Raises ConfigError, DeviceBusyError, NotOursError or HostError."""
    found = _named(target, sysfs)
    if found.adaptive is None:
        text = f"/dev/{found.device} does not run: its cache is missing; nothing was changed"
        raise NotOursError(text, code="release.cache")
    _require_disk(found.device, sysfs)
    path = Path(target)
    place = path.absolute() if path.is_dir() else None
    _require_uses(found.adaptive, place, sysfs)
    _require_no_cache(found.device, sysfs)
    offset, table = _table(found, sysfs)
    content, uuid, label = _content(found.adaptive, sysfs, run)
    _require_no_copy(found, uuid, sysfs, run)
    _require_tables(place, (f"UUID={uuid}", f"/dev/disk/by-uuid/{uuid}", f"LABEL={label}"), sysfs)
    size = int(sysfs.read(f"sys/block/{found.device}/size"))
    planned = Created(found.device, found.adaptive, found.uuid, content, offset, size, table, place)
    if place is None:
        _require_same_bytes(planned, sysfs)
    return planned


def register(
    target: str, sysfs: Sysfs, wait: Wait = wait_for, show: partition_table.Show = partition_table.reread
) -> None:
    """A command that was interrupted may have stopped the adaptive device: start it. Raises HostError."""
    try:
        device = name_of(Path(target), sysfs)
    except HostError:  # a mount point, or a UUID
        return
    node = sysfs.path(f"dev/{device}")
    written = superblock.read(node)
    is_backing = written is not None and written.role is superblock.Role.BACKING
    if is_backing and not sysfs.exists(f"sys/class/block/{device}/bcache"):
        with locks.locked(node, wait):
            _start(device, sysfs, wait, show)


def _start(device: str, sysfs: Sysfs, wait: Wait, show: partition_table.Show) -> None:
    """Register the volume again, without a table that was written meanwhile. Raises HostError."""
    node, directory = sysfs.path(f"dev/{device}"), f"sys/class/block/{device}/bcache"
    block_bytes = int(sysfs.read(f"sys/class/block/{device}/queue/logical_block_size"))
    partition_table.take_back(node, block_bytes, partial(tombstone.require_node, sysfs, device), show)
    blockdev.register(sysfs, node, lambda: sysfs.exists(f"{directory}/dev"), wait, blockdev.REGISTER_S)


def _named(target: str, sysfs: Sysfs) -> Candidate:
    name = target
    with suppress(HostError):  # else a mount point or a UUID
        name = name_of(Path(target), sysfs)
    try:
        return choose(all_candidates(sysfs), name, sysfs)
    except ConfigError as error:
        if error.code != "device.unknown":
            raise
        text = f"{target} is neither an adopted volume nor registered with bcache: nothing was changed"
        raise ConfigError(text, code="release.none") from error


def _require_disk(device: str, sysfs: Sysfs) -> None:
    if not sysfs.exists(f"sys/block/{device}"):
        text = f"/dev/{device} is a partition, which cannot have a partition table: nothing was changed"
        raise NotOursError(text, code="release.partition")


def _require_uses(adaptive: str, place: Path | None, sysfs: Sysfs) -> None:
    """Raises DeviceBusyError unless the only use is one mount at `place`, or there is none."""
    found = in_use(sysfs, adaptive)
    if found and [(use.kind, use.by) for use in found] != [(UseKind.MOUNT, str(place))]:
        text = f"/dev/{adaptive} {', '.join(map(str, found))}: nothing was changed"
        raise DeviceBusyError(text, code="release.busy")


def _require_no_cache(device: str, sysfs: Sysfs) -> None:
    directory = f"sys/block/{device}/bcache"
    state = sysfs.read(f"{directory}/state")
    if state != "no cache" or sysfs.link(f"{directory}/cache") is not None:
        text = f"/dev/{device} has a cache (state {state}): flush and detach it first; nothing was changed"
        raise NotOursError(text, code="release.cache")


def _table(found: Candidate, sysfs: Sysfs) -> tuple[int, bytes]:
    """Where the data begins, in sectors, and the partition table for it. Raises NotOursError."""
    block = partition_table.read(sysfs.path(f"dev/{found.device}"))
    offset = superblock.data_offset(block[superblock.OFFSET :])
    size = int(sysfs.read(f"sys/block/{found.device}/size"))
    shown = int(sysfs.read(f"sys/block/{found.adaptive}/size"))
    if shown != size - offset:
        text = (
            f"/dev/{found.adaptive} has {shown} sectors, and {size - offset} follow its superblock: nothing was changed"
        )
        raise NotOursError(f"{text}; a volume that has grown shows it after a boot", code="release.size")
    block_bytes = int(sysfs.read(f"sys/block/{found.device}/queue/logical_block_size"))
    table = partition_table.render(found.uuid, offset_sectors=offset, size_sectors=size, block_bytes=block_bytes)
    partition_table.require_replaceable(block, table, found.uuid)
    return offset, table


def _require_same_bytes(found: Created, sysfs: Sysfs) -> None:
    """Compare the first and the last MiB, while no filesystem can write there. Raises NotOursError."""
    adaptive, device = (sysfs.path(f"dev/{name}") for name in (found.adaptive, found.device))
    begin, end = found.offset_sectors * SECTOR, found.size_sectors * SECTOR
    length = min(MIB, end - begin)
    for at in (begin, end - length):
        if superblock.bytes_of(adaptive, at - begin, length) != superblock.bytes_of(device, at, length):
            text = f"/dev/{found.adaptive} does not show the bytes of /dev/{found.device}: nothing was changed"
            raise NotOursError(text, code="release.differs")


def _content(adaptive: str, sysfs: Sysfs, run: Run) -> tuple[str, str, str]:
    """What is on the device, its UUID, and its label or nothing. Raises NotOursError."""
    found = probe(sysfs, adaptive, run)
    kind, uuid = found.get("TYPE", ""), found.get("UUID", "")
    if kind not in CONTENTS or not uuid:
        text = f"/dev/{adaptive} has {kind or 'nothing known'} on it, and only {', '.join(CONTENTS)} can be released"
        raise NotOursError(f"{text}: nothing was changed", code="release.content")
    return kind, uuid, found.get("LABEL", "")


def _require_no_copy(found: Candidate, uuid: str, sysfs: Sysfs, run: Run) -> None:
    """Raises NotOursError while a copy is there: what mounts by UUID may take either."""
    own = {found.device, *partitions(sysfs, found.device)}
    copies = set(with_uuid(sysfs, uuid, run)) - own
    for _, name, _ in blockdev.directories(sysfs, blockdev.NO_BACKING):
        written = superblock.read(sysfs.path(f"dev/{name}")) if name not in own else None
        copies |= {name} if written is not None and written.uuid == found.uuid else set()
    if copies:
        text = f"/dev/{min(copies)} is a copy of /dev/{found.device}: detach it; nothing was changed"
        raise NotOursError(text, code="release.copy")


def _require_tables(place: Path | None, names: Collection[str], sysfs: Sysfs) -> None:
    """Raises ConfigError where a line names an adaptive device by its node, or none mounts at `place` afterwards."""
    for name in TABLES:
        if named := BY_NODE.search(sysfs.read_or(name, "")):
            text = f"/{name} names {named[1]}: write UUID= and the UUID of what is on it; nothing was changed"
            raise ConfigError(text, code="release.fstab")
    entries = fstab.entries(fstab.read(sysfs.path(TABLES[0])))
    found = {entry.source.replace('"', "") for entry in entries if entry.place == str(place)}
    if place is not None and (not found or not found <= set(names)):
        text = f"/etc/fstab has to mount this filesystem at {place}, by its UUID; nothing was changed"
        raise ConfigError(text, code="release.fstab")


@dataclass(frozen=True, slots=True)
class Releaser:
    """Does the steps on the machine below `sysfs`."""

    sysfs: Sysfs
    run: Run
    wait: Wait = wait_for
    show: partition_table.Show = partition_table.reread

    def release(self, found: Created) -> str:
        """Returns the kernel's name of the partition. Raises ElastioError; it is mounted again in any case."""
        with unmounted(found.place, self.sysfs, self.run), recompose.locked(self.sysfs, self.wait, LOCK_S):
            # The question may have waited for an hour.
            _require_uses(found.adaptive, None, self.sysfs)
            _require_no_cache(found.device, self.sysfs)
            _require_same_bytes(found, self.sysfs)
            self._replace(found)
            return self._partition(found)

    def _replace(self, found: Created) -> None:
        node = self.sysfs.path(f"dev/{found.device}")
        with locks.locked(node, self.wait):  # udev would register the volume again
            try:
                self._stop(found)
                verify = partial(tombstone.require_node, self.sysfs, found.device)
                partition_table.replace_superblock(node, found.table, found.uuid, verify, self.show)
            except (ElastioError, KeyboardInterrupt):
                with suppress(ElastioError):  # the first error is the one that matters
                    _start(found.device, self.sysfs, self.wait, self.show)
                raise
            if self._shown(found) is None:
                with suppress(HostError):  # somebody may have the volume open; udev does it, too
                    self.run(["blockdev", "--rereadpt", str(node)], timeout_s=SETTLE_S)

    def _stop(self, found: Created) -> None:
        """bcache shows the volume no more some time before it closes it."""
        directory, node = f"sys/block/{found.device}/bcache", self.sysfs.path(f"dev/{found.device}")
        self.sysfs.write(f"{directory}/stop", 1)
        if not self.wait(lambda: not self.sysfs.exists(directory) and not unnamed_use(node), STOP_S):
            text = f"/dev/{found.adaptive} is in use, and stops when it is not any more: who uses it?"
            raise DeviceBusyError(f"{text} Then give the command again, or boot", code="release.stop")

    def _partition(self, found: Created) -> str:
        """What the kernel has read of the table. Raises HostError: then a boot shows the partition."""
        self.wait(lambda: self._shown(found) is not None, APPEAR_S)
        self.run(["udevadm", "settle", f"--timeout={SETTLE_S:.0f}"], timeout_s=SETTLE_S + 5)
        shown = self._shown(found)
        if shown is None:
            text = f"/dev/{found.device} is released, and the kernel has not read its partition table yet: boot"
            raise HostError(text, code="release.unread")
        return shown

    def _shown(self, found: Created) -> str | None:
        for name in partitions(self.sysfs, found.device):
            directory = f"sys/block/{found.device}/{name}"
            shown = [int(self.sysfs.read_or(f"{directory}/{file}", "0")) for file in ("start", "size")]
            if shown == [found.offset_sectors, found.size_sectors - found.offset_sectors]:
                return name
        return None
