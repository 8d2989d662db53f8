"""A saved piece of any length, and a power cut that leaves any of the sectors of any write: not a byte is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.host import heads, tombstone
from elastio.host.heads import LEAST_BYTES, MOST_SAVED_SECTORS, SAVED_SECTORS, Head
from elastio.host.sysfs import Sysfs
from elastio.host.tombstone import Pair
from elastio.units import KIB, SECTOR
from tests.fixtures.heads import HEAD

VOLUME_BYTES = MOST_SAVED_SECTORS * SECTOR + 64 * KIB
CONTENT = Random(7).randbytes(VOLUME_BYTES)
lengths = st.integers(1, MOST_SAVED_SECTORS // SAVED_SECTORS).map(lambda blocks: blocks * SAVED_SECTORS)


class CutError(Exception):
    """The power is cut."""


@contextmanager
def machine(folder: Path, length: int) -> Iterator[tuple[Sysfs, Head]]:
    """A volume and its head, as files."""
    volume = replace(HEAD.volume, size_sectors=VOLUME_BYTES // SECTOR)
    head = replace(HEAD, volume=volume, saved_sectors=length)
    with TemporaryDirectory(dir=folder) as name:
        sysfs = Sysfs(Path(name))
        sysfs.path("dev").mkdir()
        sysfs.path("dev/vdb").write_bytes(CONTENT)
        with sysfs.path("dev/vdh").open("wb") as file:
            file.truncate(LEAST_BYTES)
            file.seek(heads.slot_of(head))
            file.write(heads.serialize(head))
        yield sysfs, head


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pieces")


@contextmanager
def cut(number: int, chance: Random) -> Iterator[None]:
    """The power is cut in the write with this number, of which some sectors are on the disk."""
    pwritev, seen, share = os.pwritev, 0, chance.choice((0.02, 0.5, 0.98))

    def torn(descriptor: int, buffers: list[memoryview], at: int) -> int:
        nonlocal seen
        seen += 1
        if seen <= number:
            return pwritev(descriptor, buffers, at)
        data = bytes(buffers[0])
        for sector in range(0, len(data), SECTOR):
            if chance.random() < share:
                with Path(f"/proc/self/fd/{descriptor}").open("r+b") as file:
                    file.seek(at + sector)
                    file.write(data[sector : sector + SECTOR])
        raise CutError

    os.pwritev = torn  # type: ignore[assignment]
    try:
        with suppress(CutError):
            yield
    finally:
        os.pwritev = pwritev


def shown(sysfs: Sysfs, head: Head, *, has_tombstone: bool) -> bytes:
    """What the composed device shows of the volume."""
    volume, on_head = (sysfs.path(f"dev/{name}").read_bytes() for name in ("vdb", "vdh"))
    if not has_tombstone:
        return volume
    saved, end = head.saved_sector * SECTOR, head.saved_sectors * SECTOR
    return on_head[saved : saved + end] + volume[end:]


@settings(max_examples=100, deadline=None)
@given(lengths, st.sampled_from(["write", "remove"]), st.integers(0, 3), st.integers(0, 2**32))
def test_any_torn_write_leaves_the_piece_in_one_place_and_nothing_to_recognize(
    folder: Path, length: int, work: str, number: int, seed: int
) -> None:
    with machine(folder, length) as (sysfs, head):
        with Pair.opened(sysfs, head, "vdb", "vdh") as pair:
            if work == "remove":
                pair.write()
            with cut(number, Random(seed)):
                getattr(pair, work)()
        with Pair.opened(sysfs, head, "vdb", "vdh") as pair:
            has_tombstone = pair.completed()
            assert shown(sysfs, head, has_tombstone=has_tombstone) == CONTENT
            if has_tombstone:
                rest = sysfs.path("dev/vdb").read_bytes()[SECTOR : length * SECTOR]
                assert rest == bytes(len(rest)), "before the device is shown"
            pair.write()
            assert shown(sysfs, head, has_tombstone=True) == CONTENT
            pair.remove()
            assert shown(sysfs, head, has_tombstone=False) == CONTENT
        assert tombstone.read(sysfs.path("dev/vdb")) is None


@pytest.mark.parametrize(("work", "number"), [("write", 3), ("remove", 1)])
def test_a_first_header_that_cryptsetup_repairs_meanwhile_is_overwritten(
    folder: Path, work: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as its second header is there, whoever looks at the volume brings the first one back."""
    pwritev, seen, length = os.pwritev, 0, 5 * SAVED_SECTORS

    def repaired(descriptor: int, buffers: list[memoryview], at: int) -> int:
        nonlocal seen
        done = pwritev(descriptor, buffers, at)
        seen += 1
        if seen == number:
            with sysfs.path("dev/vdb").open("r+b") as file:
                file.write(b"LUKS" + bytes(16 * KIB))
        return done

    with machine(folder, length) as (sysfs, head), Pair.opened(sysfs, head, "vdb", "vdh") as pair:
        if work == "remove":
            pair.write()
        monkeypatch.setattr(os, "pwritev", repaired)
        getattr(pair, work)()
        assert pair.has_tombstone() == (work == "write")
        assert shown(sysfs, head, has_tombstone=work == "write") == CONTENT
