"""The laboratory's machines: guests with hot-plug of throttled disks, on user-mode Linux or QEMU."""

from elastio_testbed.hypervisor.choice import (
    HYPERVISORS,
    QEMU,
    UML,
    chosen_accelerator,
    chosen_hypervisor,
    define_machine,
)
from elastio_testbed.hypervisor.credit_meter import CreditMeter
from elastio_testbed.hypervisor.disk import Disk, Driver, Power
from elastio_testbed.hypervisor.errors import GuestError, GuestHoldsDisk, GuestTimeout, HypervisorError
from elastio_testbed.hypervisor.port import Machine
from elastio_testbed.hypervisor.programs import Completed, Programs
from elastio_testbed.hypervisor.qemu.agent import GuestAgent
from elastio_testbed.hypervisor.qemu.machine import VirtualMachine

__all__ = [
    "HYPERVISORS",
    "QEMU",
    "UML",
    "Completed",
    "CreditMeter",
    "Disk",
    "Driver",
    "GuestAgent",
    "GuestError",
    "GuestHoldsDisk",
    "GuestTimeout",
    "HypervisorError",
    "Machine",
    "Power",
    "Programs",
    "VirtualMachine",
    "chosen_accelerator",
    "chosen_hypervisor",
    "define_machine",
]
