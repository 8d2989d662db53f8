"""The head of an adopted device: what is written can be read, what is damaged is refused, no byte is in two places."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.errors import NotOursError
from elastio.host.heads import (
    BEHIND,
    BLOCK_BYTES,
    CONTENT_SECTOR,
    DATA_OFFSET_SECTORS,
    LEAST_BYTES,
    LONGER,
    MAGIC,
    MOST_SAVED_SECTORS,
    SAVED_SECTOR,
    SAVED_SECTORS,
    SLOTS,
    Head,
    Volume,
    behind,
    gaps,
    parse,
    serialize,
    slot_of,
    table,
    valid,
)
from elastio.units import MIB, SECTOR
from tests.fixtures.errors import refused
from tests.fixtures.heads import BACKING, HEAD, VOLUME

texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80)
volumes = st.builds(
    Volume,
    st.sampled_from(["ext4", "xfs"]),
    st.uuids().map(str),
    st.integers(MOST_SAVED_SECTORS + 1, 2**50),
    texts,
    texts,
    texts,
)
heads = st.builds(
    Head,
    st.uuids().map(str),
    st.uuids().map(str),
    volumes,
    st.integers(LEAST_BYTES // SECTOR, 2**50),
    sequence=st.integers(1, 2**60),
    saved_sectors=st.integers(1, MOST_SAVED_SECTORS // SAVED_SECTORS).map(lambda blocks: blocks * SAVED_SECTORS),
)


def mapped(head: Head, sector: int, *, has_tombstone: bool = False) -> tuple[str, int]:
    """Device and sector that the kernel's `linear` target reads for a sector of the composed device."""
    for row in table(head, "8:1", "8:2", has_tombstone=has_tombstone):
        if row.begin <= sector < row.begin + row.length:
            return row.device, row.offset + sector - row.begin
    raise AssertionError(f"sector {sector} is not mapped")


@given(heads, st.sampled_from([0, MIB // SECTOR, 2**40]))
def test_what_is_serialized_is_parsed(head: Head, first_sector: int) -> None:
    found = behind(head, first_sector) if first_sector > head.saved_sectors else head
    assert parse(serialize(found)) == found


@given(heads, st.integers(MOST_SAVED_SECTORS + 1, 2**40), st.booleans())
def test_behind_a_filesystem_no_sector_is_in_two_places(head: Head, first_sector: int, has_tombstone: bool) -> None:
    """Nor is one between the end of what is shown of the volume and the labels."""
    found = behind(head, first_sector)
    rows = table(found, "8:1", "8:1", has_tombstone=has_tombstone)
    own = sorted((row.offset, row.offset + row.length) for row in rows)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(own))
    assert rows[-1].offset + rows[-1].length == first_sector
    assert slot_of(found) == first_sector * SECTOR + slot_of(head)


@given(heads, st.sampled_from([0, 2**40]))
def test_what_is_zeros_of_a_head_is_all_that_has_no_other_use(head: Head, first_sector: int) -> None:
    found = behind(head, first_sector) if first_sector else head
    first = first_sector * SECTOR
    blocks = [first + at for at in (*SLOTS, CONTENT_SECTOR * SECTOR + 4096)]
    saved = first + SAVED_SECTOR * SECTOR
    own = [*((at, at + BLOCK_BYTES) for at in blocks), (saved, saved + head.saved_sectors * SECTOR)]
    every = sorted([*own, *(place for place in gaps(found) if place[0] < place[1])])
    assert [every[0][0], every[-1][1]] == [first, first + LEAST_BYTES]
    assert all(end == begin for (_, end), (begin, _) in pairwise(every))


@settings(max_examples=300)
@given(heads, st.integers(0, BLOCK_BYTES - 1), st.integers(1, 255))
def test_a_label_with_one_changed_byte_is_no_label_or_damaged(head: Head, at: int, change: int) -> None:
    block = bytearray(serialize(head))
    block[at] ^= change
    if at < len(MAGIC):
        assert parse(bytes(block)) is None
    else:
        with refused(NotOursError, "head.damaged"):
            parse(bytes(block))


@pytest.mark.parametrize("block", [b"", bytes(BLOCK_BYTES), b"\xff" * BLOCK_BYTES, MAGIC])
def test_what_is_no_label_is_none(block: bytes) -> None:
    assert parse(block) is None


@given(heads, st.data())
def test_the_adaptive_device_shows_exactly_the_volume(head: Head, data: st.DataObject) -> None:
    sectors = head.volume.size_sectors
    for sector in (0, sectors - 1, data.draw(st.integers(0, sectors - 1))):
        assert mapped(head, DATA_OFFSET_SECTORS + sector) == ("8:2", sector)
    with pytest.raises(AssertionError):
        mapped(head, DATA_OFFSET_SECTORS + sectors)


@given(heads, st.data())
def test_with_a_tombstone_all_but_the_saved_piece_is_the_volume(head: Head, data: st.DataObject) -> None:
    sectors = head.volume.size_sectors
    length = head.saved_sectors
    for sector in (length, sectors - 1, data.draw(st.integers(length, sectors - 1))):
        assert mapped(head, DATA_OFFSET_SECTORS + sector, has_tombstone=True) == ("8:2", sector)
    saved = [mapped(head, DATA_OFFSET_SECTORS + sector, has_tombstone=True) for sector in range(length)]
    assert saved == [("8:1", SAVED_SECTOR + sector) for sector in range(length)]
    with pytest.raises(AssertionError):
        mapped(head, DATA_OFFSET_SECTORS + sectors, has_tombstone=True)


@given(heads, st.integers(0, DATA_OFFSET_SECTORS - 1))
def test_what_is_in_front_of_the_volume_lies_in_the_head_and_on_no_label(head: Head, sector: int) -> None:
    device, at = mapped(head, sector)
    assert device == "8:1"
    assert at < head.size_sectors
    assert all(not slot <= at * SECTOR < slot + BLOCK_BYTES for slot in SLOTS)


def test_the_head_alone_has_no_superblock_where_bcache_looks_for_one() -> None:
    """4 KiB from its begin; on the composed device it is 4 KiB from the content's begin."""
    assert CONTENT_SECTOR > 0
    assert all(not slot <= 4096 < slot + BLOCK_BYTES for slot in SLOTS)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(HEAD, content_sector=0),
        replace(HEAD, content_sector=1024),
        replace(HEAD, content_sector=HEAD.size_sectors - 8),
        replace(HEAD, content_sectors=8),
        replace(HEAD, size_sectors=CONTENT_SECTOR),
        replace(HEAD, volume=replace(VOLUME, size_sectors=SAVED_SECTORS)),
        replace(HEAD, saved_sector=CONTENT_SECTOR),
        replace(HEAD, saved_sector=HEAD.size_sectors - 1),
        replace(HEAD, sequence=0),
        replace(behind(HEAD, 4096), first_sector=8192),
        replace(behind(HEAD, 4096), first_sector=2048),
        replace(behind(HEAD, 4096), size_sectors=SAVED_SECTOR),
        replace(HEAD, saved_sectors=0),
        replace(HEAD, saved_sectors=SAVED_SECTORS + 1),
        replace(HEAD, saved_sectors=MOST_SAVED_SECTORS + SAVED_SECTORS),
        replace(HEAD, saved_sectors=MOST_SAVED_SECTORS, volume=replace(VOLUME, size_sectors=MOST_SAVED_SECTORS)),
    ],
)
def test_places_that_overlap_or_are_not_there_are_refused(wrong: Head) -> None:
    with refused(NotOursError, "head.places"):
        serialize(wrong)


def test_a_label_that_has_no_room_is_refused() -> None:
    with refused(NotOursError, "head.length"):
        serialize(replace(HEAD, volume=replace(VOLUME, serial="x" * BLOCK_BYTES)))


def versioned(version: int) -> bytes:
    """A sound label of another version."""
    from elastio.host import heads as module

    block = bytearray(serialize(HEAD))
    block[16:20] = version.to_bytes(4, "little")
    return module._with_checksum(bytes(block))


def test_a_newer_version_is_refused_also_beside_a_known_one() -> None:
    with refused(NotOursError, "head.version"):
        parse(versioned(5))
    with refused(NotOursError, "head.version"):
        valid([serialize(HEAD), versioned(5)])


def test_a_label_of_the_first_version_is_read() -> None:
    assert parse(versioned(1)) == HEAD


def test_only_a_head_that_saves_more_or_lies_behind_has_a_version_that_older_releases_refuse() -> None:
    """They would show the volume without what they do not know to be on the head."""
    longer = replace(HEAD, saved_sectors=2 * SAVED_SECTORS)
    versions = [serialize(head)[16] for head in (HEAD, longer, behind(HEAD, 4096), behind(longer, 4096))]
    assert versions == [2, LONGER, BEHIND, BEHIND]


def test_the_label_with_the_higher_sequence_number_is_valid_and_a_change_keeps_the_one_before() -> None:
    later = replace(HEAD, sequence=2)
    assert slot_of(HEAD) != slot_of(later)
    assert slot_of(HEAD) == slot_of(replace(HEAD, sequence=3))
    assert valid([serialize(HEAD), serialize(later)]) == valid([serialize(later), serialize(HEAD)]) == later
    assert valid([bytes(BLOCK_BYTES), bytes(BLOCK_BYTES)]) is None


@given(st.integers(56, BLOCK_BYTES - 1))
def test_after_a_torn_change_the_label_before_it_is_valid(length: int) -> None:
    torn = serialize(replace(HEAD, sequence=2))[:length] + b"\xa5" * (BLOCK_BYTES - length)
    assert valid([serialize(HEAD), torn]) == HEAD
    with refused(NotOursError, "head.damaged"):
        valid([bytes(BLOCK_BYTES), torn])


def test_labels_of_two_heads_are_refused() -> None:
    with refused(NotOursError, "head.ambiguous"):
        valid([serialize(HEAD), serialize(replace(HEAD, uuid=BACKING, sequence=2))])
