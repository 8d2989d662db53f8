"""The laboratory's hypervisor: QEMU guests with hot-plug of throttled disks."""

from elastio_testbed.hypervisor.credit_meter import CreditMeter
from elastio_testbed.hypervisor.disk import Disk, Driver, Power
from elastio_testbed.hypervisor.errors import GuestError, GuestHoldsDisk, GuestTimeout, HypervisorError
from elastio_testbed.hypervisor.qemu.agent import GuestAgent
from elastio_testbed.hypervisor.qemu.machine import VirtualMachine

__all__ = [
    "CreditMeter",
    "Disk",
    "Driver",
    "GuestAgent",
    "GuestError",
    "GuestHoldsDisk",
    "GuestTimeout",
    "HypervisorError",
    "Power",
    "VirtualMachine",
]
