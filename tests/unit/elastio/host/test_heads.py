"""Heads of adopted volumes on disk: nothing else is written, and a write that ends early leaves no label."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest

from elastio.errors import HostError, NotOursError
from elastio.host import heads, superblock, tombstone
from elastio.host.blockdev import run_wipefs
from elastio.host.commands import run
from elastio.host.heads import BLOCK_BYTES, LEAST_BYTES, SLOTS, serialize
from elastio.units import MIB, SECTOR
from tests.fixtures.errors import refused
from tests.fixtures.heads import BACKING, HEAD

BLOCK = superblock.render_backing(UUID(BACKING), UUID(int=8), block_bytes=512, data_offset_sectors=2048)
OLD = b"old!"
# What a device may have behind the head stays.
SIZE = LEAST_BYTES + MIB


def anything(descriptor: int) -> None:
    """Whatever is open is what was meant."""


def other(descriptor: int) -> None:
    raise NotOursError("another disk has the name now", code="disk.changed")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    path = tmp_path / "vdh"
    path.write_bytes(OLD * (SIZE // len(OLD)))
    return path


def test_what_was_written_is_found_and_what_is_behind_it_stays(node: Path) -> None:
    assert heads.read(node) is None
    heads.write(node, HEAD, BLOCK, anything)
    assert heads.read(node) == HEAD
    assert heads.superblock_of(node, HEAD)[: len(BLOCK)] == BLOCK
    assert node.read_bytes()[LEAST_BYTES:] == OLD * (MIB // len(OLD))
    heads.erase(node, HEAD, anything)
    assert heads.read(node) is None
    assert node.read_bytes() == bytes(LEAST_BYTES) + OLD * (MIB // len(OLD))


def test_the_superblock_goes_when_all_else_is_zeros_on_the_disk(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the label, what a power cut leaves of a head is told by it."""
    heads.write(node, HEAD, BLOCK, anything)
    with node.open("r+b") as file:
        file.seek(HEAD.saved_sector * SECTOR)
        file.write(b"saved")
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(node.read_bytes()[:LEAST_BYTES]))
    heads.erase(node, HEAD, anything)
    only_it = bytearray(LEAST_BYTES)
    at = HEAD.content_sector * SECTOR + superblock.OFFSET
    only_it[at : at + len(BLOCK)] = BLOCK
    assert synced[-2:] == [only_it, bytes(LEAST_BYTES)]


@pytest.mark.runs_programs
def test_the_head_alone_looks_like_nothing_to_libblkid_and_bcache(node: Path) -> None:
    node.write_bytes(bytes(LEAST_BYTES))
    heads.write(node, HEAD, BLOCK, anything)
    assert run_wipefs(node, run) == ()
    assert superblock.read(node) is None
    with refused(HostError, "program.failed"):
        run(["blkid", "-p", str(node)])


def test_a_device_that_is_another_one_now_is_not_changed(node: Path) -> None:
    before = node.read_bytes()
    with refused(NotOursError, "disk.changed"):
        heads.write(node, HEAD, BLOCK, other)
    with refused(NotOursError, "disk.changed"):
        heads.erase(node, HEAD, other)
    assert node.read_bytes() == before


def test_a_write_that_ends_before_the_label_leaves_no_head(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def power_cut(descriptor: int) -> None:
        raise OSError(5, "power cut")

    monkeypatch.setattr(os, "fsync", power_cut)
    with refused(HostError, "head.write"):
        heads.write(node, HEAD, BLOCK, anything)
    assert heads.read(node) is None


def test_a_device_without_a_head_passes_and_one_with_a_head_or_a_damaged_one_does_not(node: Path) -> None:
    tombstone.require_none(node, "/dev/vdh", "x")
    with refused(HostError, superblock.UNREADABLE):
        tombstone.require_none(node.with_name("gone"), "/dev/gone", "x")
    for label in (serialize(HEAD), serialize(HEAD)[:-1] + b"x"):
        for slot in SLOTS:
            node.write_bytes(bytes(slot) + label + bytes(LEAST_BYTES - slot - BLOCK_BYTES))
            with refused(NotOursError, "x"):
                tombstone.require_none(node, "/dev/vdh", "x")
