"""Stored states with a real QEMU whose guest only halts: what cannot be stored or resumed boots."""

import json
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elastio_testbed.hypervisor import GuestTimeout, HypervisorError, VirtualMachine
from elastio_testbed.hypervisor.qemu.command import Hardware
from elastio_testbed.hypervisor.qemu.stored import VARIABLE, Kind, StoredState, is_wanted, stored_state
from elastio_testbed.image import GuestImage
from tests.unit.elastio_testbed.halting_guest import halting_image

pytestmark = pytest.mark.runs_programs

BOOT_S = 0.3
STREAM, ROOT, MANIFEST = "stream", "root.qcow2", "manifest.json"
HARDWARE = Hardware("tcg,thread=multi", 1, 64)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("ELASTIO_CACHE", str(folder))
    monkeypatch.delenv(VARIABLE, raising=False)
    return folder


@pytest.fixture
def image(tmp_path: Path) -> GuestImage:
    return halting_image(tmp_path)


@pytest.fixture
def kind(image: GuestImage) -> Kind:
    return Kind(image, HARDWARE)


@pytest.fixture
def vm(image: GuestImage, tmp_path: Path) -> Iterator[VirtualMachine]:
    with VirtualMachine(image, directory=tmp_path / "vm", memory_mib=64, cpus=1, accel="tcg") as machine:
        yield machine


def laid(cache: Path, kind: Kind) -> Path:
    """The entry of a state that QEMU cannot load, with a good root and right checksums."""
    entry = cache / f"state-{kind.digest()}"
    entry.mkdir()
    (entry / STREAM).write_bytes(b"no stream of QEMU")
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(kind.image.root), str(entry / ROOT)]
    subprocess.run(create, check=True)
    manifest = {"waiting": 1} | {name: zlib.crc32((entry / name).read_bytes()) for name in (STREAM, ROOT)}
    (entry / MANIFEST).write_text(json.dumps(manifest))
    return entry


def entries(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.suffix != ".lock"]


def test_a_state_belongs_to_one_image_memory_number_of_processors_and_set_of_ports(kind: Kind) -> None:
    others = [
        replace(kind, image=replace(kind.image, digest="other")),
        replace(kind, image=replace(kind.image, kernel=Path("/other"))),
        replace(kind, hardware=replace(HARDWARE, memory_mib=65)),
        replace(kind, hardware=replace(HARDWARE, cpus=2)),
        replace(kind, hardware=replace(HARDWARE, accel="kvm")),
        replace(kind, ports=("records",)),
        replace(kind, ports=("records", "triggers")),
    ]
    assert len({each.digest() for each in (kind, *others)}) == 1 + len(others)
    assert replace(kind).digest() == kind.digest()


@pytest.mark.parametrize(
    ("variable", "chosen", "wanted"),
    [(None, None, True), ("", None, True), ("yes", None, True), ("no", None, False), ("no", True, True)],
)
def test_the_variable_decides_unless_the_machine_does(
    variable: str | None, chosen: bool | None, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv(VARIABLE, variable)
    assert is_wanted(chosen) is wanted


def test_another_value_of_the_variable_is_refused(image: GuestImage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "never")
    with pytest.raises(HypervisorError):
        VirtualMachine(image)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the laboratory logged; the library that speaks QMP logs a reset connection, or not."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("elastio")]


def test_a_guest_that_cannot_be_stored_boots_and_leaves_nothing_in_the_cache(
    vm: VirtualMachine, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(GuestTimeout):
        vm.start(BOOT_S)
    assert vm.alive
    assert entries(cache) == []
    [line] = said(caplog)
    assert "\n" not in line


def test_what_a_killed_builder_left_is_deleted(kind: Kind, cache: Path) -> None:
    for name in (f".state-{kind.digest()}.killed", ".state-other.building"):
        (cache / name / "boot").mkdir(parents=True)
    assert stored_state(kind, BOOT_S) is None
    assert entries(cache) == [".state-other.building"]


def test_a_state_that_qemu_refuses_is_deleted_and_the_machine_boots(
    vm: VirtualMachine, kind: Kind, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    laid(cache, kind)
    with pytest.raises(GuestTimeout):
        vm.start(BOOT_S)
    assert vm.alive
    assert entries(cache) == []
    assert len(said(caplog)) == 1


@pytest.mark.parametrize("name", [STREAM, ROOT])
def test_a_changed_byte_is_noticed_before_qemu_starts(kind: Kind, cache: Path, name: str, tmp_path: Path) -> None:
    entry = laid(cache, kind)
    data = bytearray((entry / name).read_bytes())
    data[-1] ^= 1
    (entry / name).write_bytes(data)
    assert StoredState(kind, entry).resume(tmp_path / "vm", {}) is None
    assert entries(cache) == []
    assert not (tmp_path / "vm").exists()


@pytest.mark.parametrize("lost", [STREAM, ROOT, MANIFEST])
def test_a_state_without_one_of_its_files_is_deleted(kind: Kind, cache: Path, lost: str, tmp_path: Path) -> None:
    entry = laid(cache, kind)
    (entry / lost).unlink()
    assert StoredState(kind, entry).resume(tmp_path / "vm", {}) is None
    assert entries(cache) == []
    assert not (tmp_path / "vm" / ROOT).exists(), "the machine would boot from another root"


def test_a_manifest_of_another_form_is_a_state_that_cannot_be_resumed(kind: Kind, cache: Path, tmp_path: Path) -> None:
    entry = laid(cache, kind)
    for text in ("", "[]", "{}", '{"waiting": 1}'):
        entry.mkdir(exist_ok=True)
        (entry / "manifest.json").write_text(text)
        assert StoredState(kind, entry).resume(tmp_path / "vm", {}) is None
        assert entries(cache) == []


def test_a_machine_with_a_root_of_its_own_boots(vm: VirtualMachine, kind: Kind, cache: Path) -> None:
    with pytest.raises(GuestTimeout):
        vm.start(BOOT_S)
    entry = laid(cache, kind)
    vm.kill()
    with pytest.raises(GuestTimeout):
        vm.start(BOOT_S)
    assert entries(cache) == [entry.name], "nobody tried to resume"
