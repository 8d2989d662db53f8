"""The choice between user-mode Linux and QEMU."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

from elastio_testbed.hypervisor.disk import Disk, Power
from elastio_testbed.hypervisor.errors import HypervisorError
from elastio_testbed.hypervisor.port import Machine
from elastio_testbed.hypervisor.qemu.accel import accelerator
from elastio_testbed.hypervisor.qemu.machine import VirtualMachine
from elastio_testbed.hypervisor.uml.machine import UmlMachine
from elastio_testbed.image import GuestImage

QEMU, UML = "qemu", "uml"
HYPERVISORS = (UML, QEMU)
VARIABLE = "ELASTIO_HYPERVISOR"
_CAP_SYS_ADMIN = 21  # capability.h


def chosen_hypervisor(wanted: str | None = None) -> str:
    """The hypervisor of that name, else that of $ELASTIO_HYPERVISOR, else UML where it runs, else QEMU.

    Raises HypervisorError for an unknown name.
    """
    name = wanted or os.environ.get(VARIABLE) or (UML if _uml_runs() else QEMU)
    if name not in HYPERVISORS:
        raise HypervisorError(f"the hypervisor {name!r} is not known; use one of {', '.join(HYPERVISORS)}")
    return name


def chosen_accelerator(wanted: str | None = None) -> str:
    """How the chosen hypervisor runs the guest's instructions: as the host's own, or by QEMU's accelerator."""
    return "native" if chosen_hypervisor(wanted) == UML else accelerator()


def define_machine(
    image: GuestImage,
    *,
    hypervisor: str | None = None,
    disks: Iterable[Disk] = (),
    directory: Path | None = None,
    memory_mib: int = 1536,
    ports: Mapping[str, Path] | None = None,
    power: Power | None = None,
) -> Machine:
    """Define a machine; nothing is started. `hypervisor` as in `chosen_hypervisor`.

    `disks` are plugged at boot. Writes to /dev/virtio-ports/NAME of the guest are appended to the file that `ports` has
    for NAME. `directory` is for overlay, console and logs; without one they are temporary and deleted by `close`.
    `power` serves all disks, if there is one. Raises HypervisorError.
    """
    kind = UmlMachine if chosen_hypervisor(hypervisor) == UML else VirtualMachine
    return kind(image, disks=disks, directory=directory, memory_mib=memory_mib, ports=ports, power=power)


def _uml_runs() -> bool:
    """User-mode Linux is of this processor's kind, and this process may make a namespace of processes."""
    return platform.machine() == "x86_64" and may_make_namespaces(Path("/proc/self/status").read_text())


def may_make_namespaces(status: str) -> bool:
    """Whether the text of /proc/PID/status shows the capability CAP_SYS_ADMIN as effective."""
    capabilities = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(capabilities, 16) & 1 << _CAP_SYS_ADMIN)
