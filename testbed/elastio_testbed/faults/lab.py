"""The guest of a campaign: an agent that boosts, a writer of records, and an EC2-compatible cloud of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from elastio_testbed.adopted import AdoptedGuest
from elastio_testbed.ec2 import Ec2Endpoint
from elastio_testbed.experiment import Setup
from elastio_testbed.faults.fault_target import (
    CALL_S,
    DEADLINE_S,
    RECORDS_PORT,
    REST_S,
    TRIGGER_PORT,
    FaultTarget,
)
from elastio_testbed.faults.neighbour import FIRST_DEVICE, PORT, SERIAL, Neighbour
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
        beside: Lab | None = None,
        devices: int = 1,
        adopted: str | None = None,
    ) -> None:
        """Nothing runs before `prepare`. `fixed_cache_gb` as in `Plan`; `beside`: the guest whose cloud is used too;
        `devices` 2: with a `Neighbour`; `adopted`: an `AdoptedGuest` with this one of its CASES.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.plan = Plan("demo", (Setup.ADAPTIVE,), scale=0.12, seed=seed, fixed_cache_gb=fixed_cache_gb)
        self.scaled = self.plan.scaled()
        self._stack = ExitStack()
        self._owns_cloud = beside is None
        self.cloud: Ec2Endpoint = self._own_cloud() if beside is None else beside.cloud
        records, triggers = folder / "records.port", folder / "triggers.port"
        guest = (AdoptedGuest if adopted else Guest)(
            image,
            folder / "vm",
            "vm0" if beside is None else "vm1",
            Setup.ADAPTIVE,
            self.scaled,
            sample_interval_s=1.0,
            ports={RECORDS_PORT: records, TRIGGER_PORT: triggers, PORT: folder / "neighbour.port"},
            memory_mib=SMALL_MIB,
            power=power,
        )
        guest.be_made_as(adopted or filesystem)
        super().__init__(guest, records, triggers)
        self.neighbour = Neighbour(guest, folder / "vm", folder / "neighbour.port") if devices > 1 else None
        if self.neighbour is not None:
            guest.device_option = FIRST_DEVICE

    def _own_cloud(self) -> Ec2Endpoint:
        return open_endpoint(self.plan, self.scaled, self.folder / "cloud")

    def __enter__(self) -> Self:
        if self._owns_cloud:
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
        if self.neighbour is not None:
            self.neighbour.prepare(self.cloud)
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
        disks = [serial for serial in self.guest.vm.disks() if serial not in (*self.guest.kept, SERIAL)]
        return tuple(sorted({*volumes.values(), *(volumes.get(serial, serial) for serial in disks)}))

    # --- power -------------------------------------------------------------------------------------------------

    def mount(self) -> None:
        """Mount the adaptive device once it exists; the filesystem replays its journal."""
        self.wait_until(lambda: self.device() != "", 240, "the adaptive device")
        is_mounted = f"mountpoint -q {DATA}"  # an adopted volume by /etc/fstab, at any time
        mount = f"mount /dev/{self.device()} {DATA}"
        if isinstance(self.guest, AdoptedGuest) and self.guest.is_closed:
            mount = self.guest.open
        script = f"{is_mounted} || {mount} || {is_mounted}"
        self.guest.check(["sh", "-c", script], timeout_s=120)
        if self.neighbour is not None:
            self.neighbour.mount()

    def wait_for_rest(self, seconds: float = REST_S) -> None:
        """See `FaultTarget`; the neighbour, too."""
        super().wait_for_rest(seconds)
        if self.neighbour is not None:
            self.neighbour.wait_for_rest(seconds)
            self.settle(60)

    def writers_run(self) -> bool:
        """Whether every writer that was started runs."""
        return self.writer_runs() and (self.neighbour is None or self.neighbour.writer_runs())

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
        """The id of the data device's attached cache volume. Raises GuestError unless there is exactly one."""
        own = [v for v in self.cloud.live_volumes() if v.tags.get("elastio:backing") == self.guest.backing_uuid]
        here = [v.id for v in own if v.serial in self.guest.vm.disks()]
        if len(here) != 1:
            raise GuestError(f"{len(here)} cache volumes are plugged, not one")
        return here[0]
