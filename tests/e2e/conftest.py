"""One guest per module, as booting takes a minute under emulation; every test leaves the guest idle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.ec2 import Ec2Endpoint
from elastio_testbed.experiment import Setup
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA, INSTANCE_TYPE, SMALL_MIB, Guest, new_disk
from elastio_testbed.scratch import scratch_folder
from elastio_testbed.trial import Plan, open_endpoint, running_guest

BOOT_S = 240.0
CYCLE_S = 300.0
SECOND = "vm0second"
# A burst of 15 s at the speed of the backing volume, as a boost takes half of that on a busy machine; more than can be
# flushed within the inactivity delay.
MIB = 280
NOISE, NOISE_MIB = "/var/tmp/noise", 20
DD = "bs=1M iflag=fullblock conv=fsync status=none"


def content(name: str, mib: int) -> str:
    """A shell command that prints the content of a file: its name, then noise."""
    return f"(echo {name}; for i in $(seq {-(-mib // NOISE_MIB)}); do cat {NOISE}; done)"


@dataclass(frozen=True)
class Lab:
    """A guest with a running agent, and the cloud it buys from."""

    guest: Guest
    cloud: Ec2Endpoint

    def burst(self, name: str, mib: int) -> None:
        """Write a file of `mib` MiB in the background, as fast as the device allows.

        The noise was prepared: an emulated processor generates it slower than the device writes it.
        """
        script = f"{content(name, mib)} | dd of={DATA}/{name} {DD}"
        self.guest.check(["systemd-run", f"--unit=burst-{name}", "sh", "-c", script])

    def is_intact(self, name: str, mib: int) -> bool:
        """Read the file back from the device, without its limit; the agent is paused, as reads are a load."""
        self.guest.check(["elastio", "pause"])
        self.guest.check(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"], timeout_s=60)
        self.guest.vm.set_limit(self.guest.serial, None)
        code, _ = self.run("sh", "-c", f"{content(name, mib)} | cmp - {DATA}/{name}", timeout_s=300)
        self.guest.vm.set_limit(self.guest.serial, self.guest.cap_bytes_s)
        self.guest.wait_for(lambda s: s["load"]["utilization"] == 0, 60, "the end of the reads")
        self.guest.check(["elastio", "resume"])
        return code == 0

    def wait_for_phase(self, *phases: str, seconds: float = CYCLE_S) -> dict[str, Any]:
        return self.guest.wait_for(lambda s: s["phase"] in phases, seconds, f"phase {' or '.join(phases)}")

    def wait_for_rest(self) -> None:
        """Wait until the agent is idle and owns no volume, and the cloud has settled."""
        self.guest.wait_for(
            lambda s: s["phase"] == "idle" and s["cycle"] is None and s["owned"] == [], CYCLE_S, "the agent to be idle"
        )
        self.cloud.settle(60)

    def left(self) -> tuple[list[str], tuple[str, ...]]:
        """Volumes at the API, and foreign disks in the machine."""
        disks = tuple(d for d in self.guest.vm.disks() if d != self.guest.serial)
        return [v.id for v in self.cloud.live_volumes()], disks

    def run(self, *argv: str, timeout_s: float = 60) -> tuple[int, str]:
        """Exit code and output."""
        done = self.guest.vm.agent.run(list(argv), timeout_s=timeout_s)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace").strip()


PLAN = Plan("demo", (Setup.ADAPTIVE,), scale=0.12)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    running = running_guest(PLAN, Setup.ADAPTIVE, build_guest_image(), sample_interval_s=1, memory_mib=SMALL_MIB)
    with running as (guest, cloud):
        make_noise(guest)
        yield Lab(guest, cloud)


@pytest.fixture(scope="module")
def blank() -> Iterator[Lab]:
    """A guest with two blank disks, on which nothing is set up, and a cloud that it can reach."""
    scaled, image = PLAN.scaled(), build_guest_image()
    with scratch_folder("elastio-e2e-") as name, open_endpoint(PLAN, scaled, Path(name) / "cloud") as cloud:
        folder = Path(name) / "vm"
        guest = Guest(image, folder, "vm0", Setup.ADAPTIVE, scaled, sample_interval_s=1, memory_mib=SMALL_MIB)
        with guest.vm:
            guest.vm.start(BOOT_S)
            second = new_disk(folder, SECOND, scaled.backing_bytes)
            guest.vm.plug(SECOND, second.path, bytes_per_second=scaled.cache_bytes_s)
            guest.vm.set_limit(SECOND, None)
            guest.instance_id = cloud.add_instance(guest.vm, instance_type=INSTANCE_TYPE)
            make_noise(guest)
            yield Lab(guest, cloud)


def make_noise(guest: Guest) -> None:
    guest.check(["dd", "if=/dev/urandom", f"of={NOISE}", "bs=1M", f"count={NOISE_MIB}"], timeout_s=60)
