"""`recover`, the drill, `doctor` and `--device` find a mount that does not name the adaptive device by its number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.config.neighbours import Device
from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted
from elastio.host.view import find_backing
from elastio_cli.drill_file import place_of
from elastio_cli.which_device import find
from elastio_setup.check_result import Machine, Verdict
from elastio_setup.device_checks import _mount
from tests.fixtures import stacks
from tests.fixtures.stacks import MOUNTED, UNMOUNTED, Stack
from tests.fixtures.sysfs_tree import BACKING_UUID, Kernel, build

from .conftest import FakeAgent, Shell
from .test_operate import OPEN, commands, waiting


@pytest.fixture
def kernel(elastio: Shell) -> Kernel:
    made = build(elastio.app.root).kernel
    made.tie("sys/class/block/vdb", "sys/block/vdb")
    return made


def recovering(agent: FakeAgent) -> None:
    agent.statuses = [waiting(running=True), OPEN]
    agent.replies = {"recover": accepted("yes")}


@pytest.mark.parametrize("stack", [*MOUNTED.values(), *UNMOUNTED.values()], ids=[*MOUNTED, *UNMOUNTED])
def test_nothing_is_brought_back_while_the_device_is_in_use(
    stack: Stack, agent: FakeAgent, elastio: Shell, kernel: Kernel
) -> None:
    """`umount` reports success here and changes nothing, as a lazy one would."""
    stack(kernel)
    recovering(agent)
    shell = Shell(replace(elastio.app, run=lambda argv, timeout_s: ""))
    assert shell("recover", "--umount").exit_code == Exit.FAILED
    assert commands(agent) == ["status"]


@pytest.mark.parametrize("name", ["btrfs", "btrfs of two", "bcachefs", "partition", "overlay", "loop"])
def test_all_that_is_above_is_unmounted_from_the_top(
    name: str, agent: FakeAgent, elastio: Shell, kernel: Kernel
) -> None:
    places, ran = MOUNTED[name](kernel), []

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        assert "recover" not in commands(agent)
        ran.append(argv[-1])
        stacks.unmount(kernel, argv[-1])
        return ""

    recovering(agent)
    assert Shell(replace(elastio.app, run=run))("recover", "--umount").exit_code == Exit.OK
    assert ran == places[::-1]
    assert "recover" in commands(agent)


def test_a_mapping_that_stays_after_its_filesystem_is_named(agent: FakeAgent, elastio: Shell, kernel: Kernel) -> None:
    stacks.lvm(kernel)

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        stacks.unmount(kernel, argv[-1])
        return ""

    recovering(agent)
    told = Shell(replace(elastio.app, run=run))("recover", "--umount")
    assert (told.exit_code, "dm-0" in told.stderr, "recover" in commands(agent)) == (Exit.FAILED, True, False)


@pytest.mark.parametrize("name", ["ext4", "btrfs", "btrfs of two", "lvm", "partition", "md"])
def test_the_drill_finds_the_place(name: str, tmp_path: Path, elastio: Shell, kernel: Kernel) -> None:
    MOUNTED[name](kernel)
    place = tmp_path / "data"
    place.mkdir()
    table = kernel.read("proc/self/mountinfo").replace(" /data ", f" {place} ")
    kernel.lay("proc/self/mountinfo", table)
    assert place_of(elastio.app, BACKING_UUID, print, is_simulated=False) == place


@pytest.mark.parametrize("stack", [*MOUNTED.values(), *UNMOUNTED.values()], ids=[*MOUNTED, *UNMOUNTED])
def test_doctor_sees_what_uses_the_device(stack: Stack, kernel: Kernel, elastio: Shell) -> None:
    backing = find_backing(kernel, BACKING_UUID)
    assert backing is not None
    assert _mount(Machine(kernel, elastio.app.run), backing).verdict is Verdict.WARN
    stack(kernel)
    assert _mount(Machine(kernel, elastio.app.run), backing).verdict is Verdict.OK


@pytest.mark.parametrize("name", ["btrfs", "luks below lvm with btrfs", "partition"])
@pytest.mark.parametrize("wanted", ["/data", "/dev/bcache0", "/dev/vdb"])
def test_a_device_is_named_by_its_mount_point(name: str, wanted: str, kernel: Kernel) -> None:
    MOUNTED[name](kernel)
    device = Device("data", Path("/etc/elastio/data.toml"), BACKING_UUID)
    assert find([device], wanted, kernel) is device


def test_a_device_is_named_by_a_link_to_what_is_on_it(kernel: Kernel) -> None:
    stacks.lvm(kernel)
    device = Device("data", Path("/etc/elastio/data.toml"), BACKING_UUID)
    assert find([device], "/dev/mapper/vg-data", kernel) is device
