"""The real kernel is an engine as the contract says, which holds its simulation to the same steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastio.units import MIB
from elastio_testbed.hypervisor import Disk, define_machine
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import PROGRAMS
from tests.contract import cache_host
from tests.e2e.guests import BOOT_DISK, BOOT_S, HOT_DISK, MB, device_of, register, shell, volume

pytestmark = pytest.mark.guest

CACHE_MIB = 256
PLAY_S = 240.0
MODULES = "/usr/share/elastio"


def test_bcache_answers_each_step_as_the_contract_says(tmp_path: Path) -> None:
    disks = [
        Disk(BOOT_DISK, volume(tmp_path, BOOT_DISK), 100 * MB),
        Disk(HOT_DISK, volume(tmp_path, HOT_DISK, CACHE_MIB), 100 * MB),
    ]
    program = f"{PROGRAMS}/cache_host.py"
    with define_machine(build_guest_image(), disks=disks, directory=tmp_path / "vm") as vm:
        vm.start(BOOT_S)
        backing = device_of(vm.agent, BOOT_DISK)
        register(vm, backing, "-B")
        uuid = shell(vm, f"bcache-super-show {backing} | awk '$1 == \"dev.uuid\" {{print $2}}'").strip()
        vm.agent.write_file(program, Path(cache_host.__file__).read_bytes())
        argv = ["env", f"PYTHONPATH={MODULES}", "python3", program, uuid, HOT_DISK, str(CACHE_MIB * MIB)]
        answers = json.loads(vm.agent.check(argv, timeout_s=PLAY_S))
    assert answers == [[step.what, step.answer] for step in cache_host.STEPS]
