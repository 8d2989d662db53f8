"""Two guests that resume from one stored state: each has the time, random bytes and disks of its own."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio_testbed.hypervisor import Disk, VirtualMachine
from elastio_testbed.hypervisor.qemu.waking import DRAWN
from elastio_testbed.image import build_guest_image
from tests.e2e.guests import (
    BOOT_S,
    COMMAND_S,
    HOT_DISK,
    MB,
    UNPLUG_S,
    device_of,
    measured_s,
    shell,
    volume,
)

pytestmark = pytest.mark.guest

FIRST, SECOND = "volfirst", "volsecond"
# The number of random bytes makes an equal draw by chance impossible.
DRAWS = {
    # Anything later may differ by chance: the generators take new keys every few seconds after a boot.
    "by a program that waited when the state was stored": f"cut -d' ' -f1 {DRAWN}",
    "by the kernel as a UUID at that time": f"cut -d' ' -f2 {DRAWN}",
    "by the kernel as a UUID": "cat /proc/sys/kernel/random/uuid",
    "as bytes": "head -c 16 /dev/urandom | od -An -tx1",
    "by Python": "python3 -c 'import os, uuid; print(os.urandom(16), uuid.uuid4())'",
    # systemd ran when the state was stored.
    "by systemd as an identifier": "systemd-run -q --unit=drawn -r true; systemctl show -P InvocationID drawn",
}
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
CLOCK_S = 2.0


class Copy:
    """A guest, with what the first programs in it printed."""

    def __init__(self, vm: VirtualMachine) -> None:
        self.vm = vm
        vm.start(BOOT_S)
        self.drawn = {name: shell(vm, script) for name, script in DRAWS.items()}
        self.resumed = shell(vm, BOOT_ID)
        before = time.time()
        self.clock_s = float(shell(vm, "date +%s.%N"))
        self.times_s = before, time.time()


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Copy, Copy]]:
    folder = tmp_path_factory.mktemp("copies")
    one, two = (machine(folder / name) for name in ("one", "two"))
    with one, two:
        yield Copy(one), Copy(two)


def machine(folder: Path) -> VirtualMachine:
    folder.mkdir()
    disks = [Disk(serial, volume(folder, serial), 100 * MB) for serial in (FIRST, SECOND)]
    return VirtualMachine(build_guest_image(), disks=disks, directory=folder / "vm", memory_mib=512, resumes=True)


def test_both_resume_from_one_boot(copies: tuple[Copy, Copy]) -> None:
    one, two = copies
    assert one.resumed == two.resumed


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_random_differs_from_the_first_draw_on(copies: tuple[Copy, Copy], name: str) -> None:
    one, two = copies
    assert one.drawn[name]
    assert one.drawn[name] != two.drawn[name]


def test_the_clock_is_that_of_the_host(copies: tuple[Copy, Copy]) -> None:
    for copy in copies:
        before, after = copy.times_s
        assert before - CLOCK_S < copy.clock_s < after + CLOCK_S


def test_no_time_has_passed_since_the_boot_for_timers(copies: tuple[Copy, Copy]) -> None:
    """The timer elapses 15 minutes after the boot, the state may be weeks old."""
    for copy in copies:
        assert float(shell(copy.vm, "cut -d' ' -f1 /proc/uptime")) < 900
        assert shell(copy.vm, "systemctl show -P LastTriggerUSec systemd-tmpfiles-clean.timer") == ""
        assert shell(copy.vm, "systemctl --failed --no-legend") == ""


def test_disks_of_the_start_have_their_order_and_leave_like_others(copies: tuple[Copy, Copy]) -> None:
    vm = copies[1].vm
    assert [device_of(vm.agent, serial) for serial in (FIRST, SECOND)] == ["/dev/vdb", "/dev/vdc"]
    vm.unplug(SECOND, UNPLUG_S)
    assert vm.disks() == (FIRST,)
    assert SECOND not in shell(vm, "lsblk -n -o SERIAL")


def test_a_disk_is_plugged_limited_and_unplugged(copies: tuple[Copy, Copy], tmp_path: Path) -> None:
    vm = copies[0].vm
    vm.plug(HOT_DISK, volume(tmp_path, HOT_DISK), bytes_per_second=8 * MB)
    write = ["dd", "if=/dev/zero", f"of={device_of(vm.agent, HOT_DISK)}", "bs=1M", "oflag=direct", "count=24"]
    assert measured_s(vm, write) > 2.5
    vm.set_limit(HOT_DISK, 4 * MB)
    assert measured_s(vm, write) > 5
    vm.unplug(HOT_DISK, UNPLUG_S)
    assert vm.disks() == (FIRST, SECOND)


def test_the_root_of_a_copy_lies_on_the_image_and_on_no_file_of_the_state(copies: tuple[Copy, Copy]) -> None:
    """Entries of the cache may be deleted while copies run, and boot again."""
    for copy in copies:
        root = copy.vm.console.with_name("root.qcow2")
        argv = ["qemu-img", "info", "--force-share", "--output=json", str(root)]
        shown = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
        assert shown["backing-filename"] == str(build_guest_image().root)


def test_after_a_power_cut_the_guest_boots_from_its_own_root_and_powers_off(copies: tuple[Copy, Copy]) -> None:
    one, two = copies
    for copy, text in ((one, "first"), (two, "second")):
        shell(copy.vm, f"echo {text} > /var/kept && sync")
    one.vm.kill()
    one.vm.start(BOOT_S)
    assert shell(one.vm, BOOT_ID) != one.resumed
    assert shell(one.vm, "cat /var/kept") == "first"
    assert [device_of(one.vm.agent, serial) for serial in (FIRST, SECOND)] == ["/dev/vdb", "/dev/vdc"]
    assert one.vm.shutdown(COMMAND_S) is True
    assert two.vm.shutdown(COMMAND_S) is True
