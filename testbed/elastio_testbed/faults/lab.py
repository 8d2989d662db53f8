"""The guest of a campaign: an agent that boosts, a writer of records, and an EC2-compatible cloud of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from elastio_testbed.ec2 import Ec2Endpoint
from elastio_testbed.experiment import Setup
from elastio_testbed.faults.fault_target import CALL_S, DEADLINE_S, RECORDS_PORT, TRIGGER_PORT, FaultTarget
from elastio_testbed.hypervisor import GuestError, HypervisorError, Power
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import DATA, SMALL_MIB, Guest
from elastio_testbed.trial import Plan, open_endpoint

BOOT_S = 300.0


class Lab(FaultTarget):
    """One guest and its cloud; both are replaced together."""

    def __init__(
        self,
        image: GuestImage,
        folder: Path,
        seed: int,
        *,
        power: Power | None = None,
        filesystem: str = "ext4",
        fixed_cache_gb: float | None = None,
    ) -> None:
        """Nothing runs before `prepare`. `fixed_cache_gb` as in `Plan`."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.plan = Plan("demo", (Setup.ADAPTIVE,), scale=0.12, seed=seed, fixed_cache_gb=fixed_cache_gb)
        self.scaled = self.plan.scaled()
        self._stack = ExitStack()
        self.cloud: Ec2Endpoint = open_endpoint(self.plan, self.scaled, folder / "cloud")
        records, triggers = folder / "records.port", folder / "triggers.port"
        guest = Guest(
            image,
            folder / "vm",
            "vm0",
            Setup.ADAPTIVE,
            self.scaled,
            sample_interval_s=1.0,
            ports={RECORDS_PORT: records, TRIGGER_PORT: triggers},
            memory_mib=SMALL_MIB,
            power=power,
        )
        guest.filesystem = filesystem
        super().__init__(guest, records, triggers)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.cloud)
        self._stack.enter_context(self.guest.vm)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prepare(self) -> None:
        """Boot, and install agent, programs and noise so that they survive a power cut."""
        self.guest.prepare(self.cloud, boot_s=BOOT_S)
        self.write_config()
        self.install()
        self.guest.check(["systemctl", "restart", "elastiod"], timeout_s=120)
        self.guest.wait_for(lambda status: status["owned"] is not None, 180, "the agent to know its volumes")
        self.guest.check(["sync"], timeout_s=CALL_S)

    def write_config(self) -> None:
        """Write the agent's configuration, with a short attach timeout."""
        self.guest.write_config(self.cloud, {"policy": {"attach_timeout_s": DEADLINE_S}})

    def settle(self, seconds: float) -> None:
        """See `FaultTarget`."""
        self.cloud.settle(seconds)

    def leaked(self) -> tuple[str, ...]:
        """See `FaultTarget`."""
        volumes = {volume.serial: volume.id for volume in self.cloud.live_volumes()}
        disks = [serial for serial in self.guest.vm.disks() if serial != self.guest.serial]
        return tuple(sorted({*volumes.values(), *(volumes.get(serial, serial) for serial in disks)}))

    # --- power -------------------------------------------------------------------------------------------------

    def mount(self) -> None:
        """Mount the adaptive device once it exists; the filesystem replays its journal."""
        self.wait_until(lambda: self.device() != "", 240, "the adaptive device")
        if not self.succeeds("mountpoint", "-q", DATA):
            self.guest.check(["mount", f"/dev/{self.device()}", DATA], timeout_s=120)

    def boot(self) -> None:
        """Power on with all plugged disks, and mount."""
        self.guest.vm.start(BOOT_S)
        self.mount()

    # --- state -------------------------------------------------------------------------------------------------

    def uptime_s(self) -> float:
        """The guest's monotonic clock, rounded down to a hundredth."""
        return float(self.guest.check(["cat", "/proc/uptime"]).split()[0])

    def kernel_log(self) -> list[str]:
        """The lines of dmesg; none from a guest that does not respond."""
        try:
            return self.guest.check(["dmesg"], timeout_s=CALL_S).splitlines()
        except HypervisorError:
            return []

    def attached_volume(self) -> str:
        """The id of the attached cache volume. Raises GuestError unless there is exactly one."""
        here = [v.id for v in self.cloud.live_volumes() if v.serial in self.guest.vm.disks()]
        if len(here) != 1:
            raise GuestError(f"{len(here)} cache volumes are plugged, not one")
        return here[0]
