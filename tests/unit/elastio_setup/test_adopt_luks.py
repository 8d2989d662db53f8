"""LUKS is adopted closed, and nobody recognizes it while it has its tombstone: with the real programs, on files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from elastio.errors import HostError, NotOursError
from elastio.host.blockdev import run_wipefs
from elastio.host.commands import run
from elastio.host.tombstone import SECOND_HEADERS, SECOND_MAGIC
from elastio.units import KIB, MIB, SECTOR
from elastio_setup.adopt_contents import LUKS
from elastio_setup.adopted_volume import probe
from tests.fixtures.errors import refused

from .adopt_machine import UUID, AdoptMachine
from .tombstones import cut_within, end, remove, require_hidden_by_tombstone, write

pytestmark = pytest.mark.runs_programs
SIZE = 20 * MIB
DATA = Random(3).randbytes(MIB)


def formatted(machine: AdoptMachine, *options: str) -> None:
    node, key = machine.sysfs.path("dev/vdb"), machine.sysfs.path("key")
    node.write_bytes(bytes(SIZE - MIB) + DATA)
    key.write_bytes(b"secret")
    cost = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
    run(["cryptsetup", "luksFormat", "-q", "--uuid", UUID, *cost, *options, str(node), str(key)], timeout_s=60)
    machine.lay("sys/block/vdb/size", str(SIZE // SECTOR))
    machine.before, machine.found["vdb"] = machine.volume, probe(machine.sysfs, "vdb", run)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[AdoptMachine]:
    found = AdoptMachine(tmp_path)
    formatted(found)
    yield found
    assert not list(tmp_path.joinpath("run").glob("elastio-luks-*")), "no copy of a header is left"


def is_recognized(machine: AdoptMachine) -> bool:
    """Whether libblkid or cryptsetup knows the volume alone. They must not write to it, either."""
    node, before = machine.sysfs.path("dev/vdb"), machine.volume
    found = probe(machine.sysfs, "vdb", run) != {} or run_wipefs(node, run) != ()
    for command in ("isLuks", "luksDump"):
        with suppress(HostError):
            run(["cryptsetup", command, str(node)], timeout_s=60)
            found = True
    assert machine.volume == before, "the first header was repaired, over the tombstone"
    return found


@pytest.mark.parametrize(
    ("options", "length"),
    [
        (("--type", "luks1"), 4 * KIB),
        (("--type", "luks2"), 20 * KIB),
        (("--type", "luks2", "--luks2-metadata-size", "128k"), 132 * KIB),
    ],
)
def test_nobody_recognizes_it_while_it_has_its_tombstone(
    machine: AdoptMachine, options: tuple[str, ...], length: int
) -> None:
    formatted(machine, *options)
    require_hidden_by_tombstone(machine, is_recognized, length)


def test_what_an_older_luks_has_left_is_covered_too(machine: AdoptMachine) -> None:
    formatted(machine, "--type", "luks1")
    with machine.sysfs.path("dev/vdb").open("r+b") as file:
        file.seek(SECOND_HEADERS[2])
        file.write(SECOND_MAGIC)
    machine.adopter().adopt(machine.plan())
    assert end(machine) == SECOND_HEADERS[2] + 4 * KIB


@pytest.mark.parametrize("place", SECOND_HEADERS[-3:])
def test_a_second_header_that_lies_too_far_is_refused(machine: AdoptMachine, place: int) -> None:
    with machine.sysfs.path("dev/vdb").open("r+b") as file:
        file.seek(place)
        file.write(SECOND_MAGIC)
    with refused(NotOursError, "adopt.luks"):
        machine.plan()


@pytest.mark.parametrize("at", [0, 4200, 16 * KIB, 20 * KIB + 100])
def test_a_damaged_header_is_refused_and_not_repaired(machine: AdoptMachine, at: int) -> None:
    with machine.sysfs.path("dev/vdb").open("r+b") as file:
        file.seek(at)
        file.write(b"damaged")
    before = machine.volume
    with refused(NotOursError, "adopt.damaged"):
        machine.plan()
    assert machine.volume == before


def test_it_is_refused_without_cryptsetup(machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.found["vdb"]["TYPE"] == LUKS
    machine.failing.add("cryptsetup")
    with refused(NotOursError, "adopt.damaged"):
        machine.plan()


@pytest.mark.parametrize(("work", "number"), [("write", 3), ("remove", 1)])
def test_a_header_that_was_repaired_after_a_power_cut_is_the_volume_again(
    machine: AdoptMachine, work: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone is over the first sector alone, no cache was attached, and somebody runs cryptsetup."""
    machine.adopter().adopt(machine.plan())
    if work == "remove":
        write(machine)
    assert cut_within(machine, work, number, (), monkeypatch)
    machine.power_off()
    assert machine.volume.startswith(b"elastio")
    run(["cryptsetup", "isLuks", str(machine.sysfs.path("dev/vdb"))], timeout_s=60)
    assert machine.volume.startswith(b"LUKS"), "it was repaired"
    machine.boot()
    write(machine)
    assert not is_recognized(machine)
    remove(machine)
    node, key = machine.sysfs.path("dev/vdb"), machine.sysfs.path("key")
    run(["cryptsetup", "open", "--test-passphrase", "--key-file", str(key), str(node)], timeout_s=60)
    assert machine.volume[-MIB:] == DATA
