"""The tombstone: what an adopted volume has in place of its first sectors while a cache may hold its newest data.

Theory of operation. The volume alone looks like the filesystem that it is, and is older than its cache: mounted on
another machine, or in a boot without its head, it would be damaged. So before a cache is attached its first sectors
move to the head, as many as the label says (the saved piece), and a tombstone takes their place: no program recognizes
anything there, and the text says what happened. When no cache is attached any more, they go back.

Each write is on the disk before the next one:

    write   the piece to the head; the head's label with the next sequence number; the tombstone over the first sector;
            zeros over the rest of the piece
    remove  the rest of the piece from the head; then the first sector

The first sector decides, alone and at any time, which table is right: it is a tombstone, or it is not. A sector is
written as a whole, so a power cut leaves no third case, and at boot the volume is composed by the same rule. Beside a
tombstone each sector of the rest is zeros or what the head has: anything else was written by somebody else. Whoever
finds a tombstone completes it before a filesystem can write to the saved piece, and before a cache is attached: btrfs,
and the second header of LUKS2, are recognized by what lies behind the first sector. The sequence number tells a head
that was restored from an older copy.

How the table changes under a mounted filesystem, and what follows if that is interrupted: `recompose`.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from elastio.errors import HostError, NotOursError
from elastio.host import heads, superblock
from elastio.host.heads import BLOCK_BYTES, Head
from elastio.host.libblkid import recognized
from elastio.host.superblock import UNREADABLE
from elastio.host.sysfs import Sysfs
from elastio.units import KIB, MIB, SECTOR

_ZEROS = bytes(SECTOR)
# What is recognized by more than its first block: btrfs, and LUKS2 by its second header, which has one of these places.
BTRFS_SUPERBLOCK, BTRFS_MAGIC_AT, BTRFS_MAGIC = 64 * KIB, 0x40, b"_BHRfS_M"
SECOND_HEADERS = (*(size * KIB for size in (16, 32, 64, 128, 256, 512)), *(size * MIB for size in (1, 2, 4)))
SECOND_MAGIC = b"SKUL\xba\xbe"
SHORT, TOO_SHORT = "tombstone.short", "node.short"
NOT_COVERED = (
    "a tombstone does not cover all that the adopted volume is recognized by: it was formatted or converted since, or "
    "has remains of something else; release and adopt it again, or remove them (wipefs(8)); no cache was made"
)
# Odd: the label goes to the other slot.
RENEWED = 3
# udev reads the second line (59-elastio-adopted.rules).
INTRODUCTION = "elastio: this volume is adopted, and its newest data may be in a cache. Do not format or mount it."
_READ = re.compile(
    re.escape(INTRODUCTION) + r"\nELASTIO_ADOPTED=(?P<volume>[\w-]+)\nfilesystem=(?P<filesystem>\w+)\n"
    r"head=(?P<head>[\w-]+)\nsequence=(?P<sequence>[1-9]\d{0,18})\n(?:at=(?P<at>[1-9]\d{0,18})\n)?"
    r"sha256=(?P<sum>[0-9a-f]{64})\n"
)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Of the volume with this filesystem's UUID and type, by the head with this UUID, since its label `sequence`.

    `at`: the sector of the volume where the head begins; 0 if the head has a device of its own.
    """

    volume: str
    filesystem: str
    head: str
    sequence: int
    at: int = 0


def serialize(tombstone: Tombstone) -> bytes:
    """One sector. Raises NotOursError for names that would not be read back."""
    lines = (f"{name}={value}\n" for name, value in {**_named(tombstone), "sha256": _sum(tombstone)}.items())
    text = f"{INTRODUCTION}\n{''.join(lines)}"
    if _READ.fullmatch(text) is None or len(text) > SECTOR:
        raise NotOursError("the names of the volume do not fit into a tombstone", code="tombstone.names")
    return text.encode().ljust(SECTOR, b"\0")


def parse(block: bytes) -> Tombstone | None:
    """The tombstone in the first sector of a volume, or None. Raises NotOursError for a damaged one."""
    text = block[:SECTOR].rstrip(b"\0").decode(errors="replace")
    if not text.startswith(INTRODUCTION):
        return None
    found = _READ.fullmatch(text)
    if found is not None:
        numbers = (int(found[name] or 0) for name in ("sequence", "at"))
        read = Tombstone(found["volume"], found["filesystem"], found["head"], *numbers)
        if found["sum"] == _sum(read):
            return read
    raise NotOursError("the tombstone of the adopted volume is damaged", code="tombstone.damaged")


def _named(tombstone: Tombstone) -> dict[str, str]:
    """Its lines. An older release does not know `at`, and takes such a tombstone for a damaged one."""
    names = {"ELASTIO_ADOPTED": tombstone.volume, "filesystem": tombstone.filesystem, "head": tombstone.head}
    at = {"at": str(tombstone.at)} if tombstone.at else {}
    return {**names, "sequence": str(tombstone.sequence), **at}


def _sum(tombstone: Tombstone) -> str:
    return hashlib.sha256("\n".join(_named(tombstone).values()).encode()).hexdigest()


def of(head: Head) -> Tombstone:
    """The tombstone that belongs to the head's label."""
    return Tombstone(head.volume.uuid, head.volume.filesystem, head.uuid, head.sequence, head.first_sector)


def read(node: Path) -> Tombstone | None:
    """The tombstone on a device, or None. Raises HostError (UNREADABLE), and NotOursError for a damaged one."""
    with Blocks.opened(node, os.O_RDONLY) as blocks:
        try:
            return parse(blocks.read(0))
        except HostError as error:
            if error.code != TOO_SHORT:
                raise
            return None


def require_none(node: Path, shown: str, code: str) -> None:
    """Raises NotOursError if the device is an adopted volume with its tombstone, or has a head, sound or damaged.

    The node may be a link. Raises HostError if it cannot be read.
    """
    node = node.resolve()
    for part, look in (("the tombstone", read), ("the head", heads.read)):
        try:
            found = look(node)
        except NotOursError as error:
            raise NotOursError(f"{shown} has {part} of an adopted volume: {error}", code=code) from error
        if found is not None:
            uuid = found.volume.uuid if isinstance(found, Head) else found.volume
            text = f"{shown} has {part} of the adopted volume with UUID {uuid}: nothing was changed"
            raise NotOursError(text, code=code)


# --- blocks ------------------------------------------------------------------------------------------------------


class Blocks:
    """An open device, read and written past the page cache; a write is on the disk when it returns.

    Its buffer, `piece`, is there before a device is suspended: to get memory may take a write to that device.
    """

    def __init__(self, descriptor: int, shown: str, length: int) -> None:
        self.descriptor, self._shown = descriptor, shown
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        self.piece = memoryview(mmap.mmap(-1, length, flags=flags))

    @classmethod
    @contextmanager
    def opened(cls, node: Path, flags: int, length: int = BLOCK_BYTES) -> Iterator[Blocks]:
        """Raises HostError. Files of a recorded tree may lie where the page cache cannot be bypassed."""
        try:
            try:
                descriptor = os.open(node, flags | os.O_DIRECT | os.O_DSYNC | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                descriptor = os.open(node, flags | os.O_DSYNC | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise HostError(f"{node} cannot be opened: {error.strerror}", code=UNREADABLE) from error
        try:
            yield cls(descriptor, str(node), length)
        finally:
            os.close(descriptor)

    def read(self, at: int) -> bytes:
        """The block at this offset in bytes. Raises HostError."""
        return bytes(self._fill(at, BLOCK_BYTES))

    def load(self, at: int) -> memoryview:
        """As much as there is room for, until the next read or write. Raises HostError."""
        return self._fill(at, len(self.piece))

    def _fill(self, at: int, length: int) -> memoryview:
        try:
            done = os.preadv(self.descriptor, [self.piece[:length]], at)
        except OSError as error:
            raise HostError(f"{self._shown} cannot be read: {error.strerror}", code=UNREADABLE) from error
        if done != length:
            raise HostError(f"{self._shown} ends within its first {length} bytes", code=TOO_SHORT)
        return self.piece[:length]

    def flush(self) -> None:
        """Raises HostError."""
        try:
            os.fsync(self.descriptor)
        except OSError as error:
            raise HostError(f"{self._shown} cannot be flushed: {error.strerror}", code="tombstone.io") from error

    def write(self, at: int, data: bytes | memoryview) -> None:
        """Whole blocks. Raises HostError."""
        filled = self.piece[: len(data)]
        filled[:] = data
        try:
            length = os.pwritev(self.descriptor, [filled], at)
        except OSError as error:
            raise HostError(f"{self._shown} cannot be written: {error.strerror}", code="tombstone.io") from error
        self.flush()
        if length != len(data):
            raise HostError(f"{self._shown} was not written as a whole", code="tombstone.io")


@dataclass(frozen=True, slots=True)
class Pair:
    """A volume and its head, open for writing. `head`: by a label that may have changed since, but for its places."""

    head: Head
    volume: Blocks
    on_head: Blocks

    @classmethod
    @contextmanager
    def opened(cls, sysfs: Sysfs, head: Head, volume: str, head_device: str, flags: int = os.O_RDWR) -> Iterator[Pair]:
        """Raises HostError, or NotOursError if a node is not the device of that name."""
        with ExitStack() as opened:
            blocks = []
            for name in (volume, head_device):
                node, length = sysfs.path(f"dev/{name}"), head.saved_sectors * SECTOR
                blocks.append(opened.enter_context(Blocks.opened(node, flags, length)))
                require_node(sysfs, name, blocks[-1].descriptor)
            yield cls(head, *blocks)

    def completed(self) -> bool:
        """`has_tombstone`; what a crash has left beside it is zeros afterwards.

        Before the device is shown with it: a filesystem writes to the saved piece, and then nobody could tell the old
        sectors from what somebody else has written.
        """
        if parse(self.volume.read(0)) is None:
            return False
        self.write()
        return True

    def is_complete(self) -> bool:
        """Whether `completed` has nothing to write."""
        piece = self.volume.load(0)
        is_covered = all(piece[at : at + SECTOR] == _ZEROS for at in self._rest)
        return is_covered or parse(bytes(piece[:SECTOR])) is None

    def has_tombstone(self) -> bool:
        """Raises NotOursError if it is not this head's, or something was written beside it."""
        block = self.volume.read(0)
        if parse(block) is None:
            return False
        self._require_unchanged(block)
        return True

    def number(self) -> int:
        """The sequence number by the label. Raises HostError, or NotOursError if it is another head's."""
        return self._label().sequence

    def require_covered(self) -> None:
        """Raises NotOursError if a tombstone would leave what writes the saved piece again, as cryptsetup does.

        Or what needs no other look: `require_unrecognized` asks for all else, when the tombstone is there.
        """
        end, size = self.head.saved_sectors * SECTOR, self.head.volume.size_sectors * SECTOR
        for at in SECOND_HEADERS:
            block = self.volume.read(at) if end <= at <= size - BLOCK_BYTES else b""
            is_btrfs = at == BTRFS_SUPERBLOCK and block[BTRFS_MAGIC_AT:].startswith(BTRFS_MAGIC)
            if is_btrfs or block.startswith(SECOND_MAGIC):
                raise NotOursError(NOT_COVERED, code=SHORT)

    def require_unrecognized(self) -> None:
        """Raises NotOursError if anybody would still make something of the volume, which has its tombstone."""
        if found := recognized(self.volume.descriptor, "the adopted volume"):
            raise NotOursError(f"{NOT_COVERED} (libblkid finds {found})", code=SHORT)

    def write(self) -> None:
        """Put the tombstone in the place of the saved piece; one that is there is completed."""
        block, head = self.volume.read(0), self._label()
        if parse(block) is None:
            head = replace(head, sequence=head.sequence + 1)
            self.on_head.write(head.saved_at, self.volume.load(0))
            self.on_head.write(heads.slot_of(head), heads.serialize(head))
            self.volume.write(0, serialize(of(head)) + block[SECTOR:])
        else:
            self._require_unchanged(block)
        piece, first = self.volume.load(0), serialize(of(head))
        if piece[:SECTOR] != first or any(piece[at : at + SECTOR] != _ZEROS for at in self._rest):
            piece[:SECTOR] = first  # cryptsetup may have repaired it from the second header
            for at in self._rest:
                piece[at : at + SECTOR] = _ZEROS
            self.volume.write(0, piece)
        self._end_renewal(head)

    def renew(self) -> None:
        """Give a tombstone that stays a higher sequence number. The caller has seen that no cache is needed.

        The new label goes to one slot, and the other one keeps the number before, which nothing but this leaves RENEWED
        lower: a crash before the tombstone is told by it. Afterwards both slots have the new label, and an older
        tombstone is that of a volume that was reverted.
        """
        self._require_unchanged(self.volume.read(0))
        self.write()  # what a crash has left of it
        block, label = self.volume.read(0), self._label()
        head = replace(label, sequence=label.sequence + RENEWED)
        self.on_head.write(heads.slot_of(head), heads.serialize(head))
        self.volume.write(0, serialize(of(head)) + block[SECTOR:])
        self._end_renewal(head)

    def remove(self) -> None:
        """Put the saved piece back; one that is back stays."""
        block = self.volume.read(0)
        if parse(block) is None:
            return
        saved = self._require_unchanged(block)
        self.on_head.flush()  # also what bcache wrote there: that it has no cache
        for first in (block[:SECTOR], bytes(saved[:SECTOR])):
            saved[:SECTOR] = first
            self.volume.write(0, saved)

    def _label(self) -> Head:
        """The label as it is now. Raises NotOursError."""
        found = heads.valid(self.on_head.read(slot) for slot in heads.slots(self.head.first_sector))
        if found is None or found.uuid != self.head.uuid:
            raise NotOursError("the head has another label now: nothing was changed", code="head.other")
        return found

    def _may_be_older(self, label: Head) -> bool:
        """One that stays may be that of an earlier cache, as long as the head names none."""
        return label.keeps_tombstone and superblock.is_without_cache(self.on_head.read(label.superblock_at))

    def _has_its_number(self, found: Tombstone, label: Head) -> bool:
        """Whether it is as old as the label, or older and may be."""
        if found.sequence >= label.sequence:
            return found.sequence == label.sequence
        is_cut_off = found.sequence + RENEWED == label.sequence and self._has_both(label)
        return is_cut_off or self._may_be_older(label)

    def _has_both(self, label: Head) -> bool:
        """Whether the other slot has the label before a renewal."""
        if label.sequence <= RENEWED:
            return False
        before = replace(label, sequence=label.sequence - RENEWED)
        return self.on_head.read(heads.slot_of(before)) == heads.serialize(before)

    def _end_renewal(self, label: Head) -> None:
        if self._has_both(label):
            self.on_head.write(heads.slot_of(replace(label, sequence=label.sequence + 1)), heads.serialize(label))

    @property
    def _rest(self) -> range:
        """Where each sector of the saved piece begins but the first."""
        return range(SECTOR, self.head.saved_sectors * SECTOR, SECTOR)

    def _require_unchanged(self, block: bytes) -> memoryview:
        """The saved piece. Raises NotOursError for another head's tombstone, or if the volume was written to."""
        found, label = parse(block), self._label()
        is_its_own = found is not None and replace(found, sequence=label.sequence) == of(label)
        if found is None or not is_its_own or not self._has_its_number(found, label):
            text = "the tombstone is not of this head, or the head is an older copy: nothing was changed"
            raise NotOursError(text, code="tombstone.other")
        saved, own = self.on_head.load(self.head.saved_at), self.volume.load(0)
        if any(own[at : at + SECTOR] not in (_ZEROS, saved[at : at + SECTOR]) for at in self._rest):
            text = "the adopted volume was written to beside its tombstone: nothing was changed"
            raise NotOursError(text, code="tombstone.overwritten")
        return saved


def require_node(sysfs: Sysfs, name: str, descriptor: int) -> None:
    """Raises NotOursError unless the open descriptor is this device of the kernel."""
    status = os.fstat(descriptor)
    if sysfs.root != Path("/") and stat.S_ISREG(status.st_mode):
        return  # a recorded tree, as tests use it
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if not stat.S_ISBLK(status.st_mode) or number != sysfs.read_or(f"sys/class/block/{name}/dev", "none"):
        raise NotOursError(f"/dev/{name} is another device now: it was not touched", code="node.other")
