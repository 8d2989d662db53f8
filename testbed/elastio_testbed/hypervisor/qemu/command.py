"""QEMU's command line for one guest."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elastio_testbed.hypervisor.disk import CACHE, Disk
from elastio_testbed.image import GuestImage
from elastio_testbed.image.build import ROOT_LABEL

# A port takes one hot-pluggable device.
PORTS = tuple(f"port{index}" for index in range(16))
AGENT_CHARDEV, NETWORK = "agent", "net"
# The first slots of the root bus hold the fixed devices.
_FIRST_PORT_SLOT = 8
# Units that delay the boot of a guest or disturb measurements.
_MASKED_UNITS = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer"),
    *("e2scrub_all.timer", "e2scrub_reap.service", "ssh.service", "systemd-resolved.service"),
    *("getty@tty1.service", "getty-static.service", "serial-getty@ttyS0.service"),
    *("dev-hugepages.mount", "dev-mqueue.mount", "proc-sys-fs-binfmt_misc.automount", "systemd-binfmt.service"),
    *(f"modprobe@{module}.service" for module in ("dm_mod", "drm", "efi_pstore", "fuse", "loop")),
    *("systemd-network-generator.service", "systemd-pstore.service", "systemd-random-seed.service"),
    *("systemd-update-utmp.service", "systemd-update-utmp-runlevel.service"),
    *("lvm2-monitor.service", "lvm2-lvmpolld.socket", "dm-event.socket", "blk-availability.service"),
)
# Ports are hot-plugged through ACPI: the services of native PCIe ports take a fifth of the boot. Compaction for huge
# pages occupied an emulated processor for seconds once the page cache was full. The network interface keeps its name:
# networkd may wait for the renaming for ever (systemd issue 24975), and the guest then reaches no cloud.
_KERNEL = (
    "quiet mitigations=off audit=0 apparmor=0 selinux=0 nokaslr fsck.mode=skip 8250.nr_uarts=1 pcie_ports=compat"
    " transparent_hugepage=never sysctl.vm.compaction_proactiveness=0 net.ifnames=0"
)


@dataclass(frozen=True)
class Hardware:
    """The accelerator of a guest as a value of QEMU's -accel, its processors and memory."""

    accel: str
    cpus: int
    memory_mib: int


@dataclass(frozen=True)
class Wiring:
    """The files and inherited descriptors of one QEMU process.

    `ports`: the file to which writes to /dev/virtio-ports/NAME of the guest are appended, by NAME.
    """

    root_overlay: Path
    console: Path
    monitor_fd: int
    agent_fd: int
    ports: Mapping[str, Path] = field(default_factory=dict)


def kernel_command_line() -> str:
    """The kernel command line of the laboratory; it is not part of the image."""
    masks = [f"systemd.mask={unit}" for unit in _MASKED_UNITS]
    return " ".join([f"root=LABEL={ROOT_LABEL} rw console=ttyS0 cloud-init=disabled", _KERNEL, *masks])


def qemu_argv(image: GuestImage, hardware: Hardware, wiring: Wiring, disks: Iterable[tuple[Disk, str]]) -> list[str]:
    """The whole command; `disks` come with the ports they are plugged into at boot."""
    return [
        "qemu-system-x86_64",
        *_machine(hardware),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", kernel_command_line()),
        *_channels(wiring),
        *_root_and_network(wiring),
        *_ports(),
        *(argument for disk, port in disks for argument in _disk(disk, port)),
    ]


def _machine(hardware: Hardware) -> list[str]:
    return [
        *("-machine", "q35", "-accel", hardware.accel, "-cpu", "max"),
        *("-smp", str(hardware.cpus), "-m", f"{hardware.memory_mib}M"),
        *("-nodefaults", "-no-user-config", "-display", "none"),
        # A reboot of the guest ends QEMU; the next start creates a new process with new connections.
        "-no-reboot",
    ]


def _channels(wiring: Wiring) -> list[str]:
    return [
        *(
            "-chardev",
            f"file,id=console,path={_escaped(wiring.console)},append=on",
            "-serial",
            "chardev:console",
        ),
        *("-chardev", f"socket,id=monitor,fd={wiring.monitor_fd}", "-mon", "chardev=monitor,mode=control"),
        *("-chardev", f"socket,id={AGENT_CHARDEV},fd={wiring.agent_fd}", "-device", "virtio-serial-pci"),
        *("-device", f"virtserialport,chardev={AGENT_CHARDEV},name=org.qemu.guest_agent.0"),
        *(argument for number, name in enumerate(wiring.ports) for argument in _port(number, name, wiring.ports[name])),
    ]


def _port(number: int, name: str, path: Path) -> list[str]:
    """QEMU writes to the file before it accepts the guest's next buffer, so the content survives a power cut."""
    return [
        *("-chardev", f"file,id=out{number},path={_escaped(path)},append=on"),
        *("-device", f"virtserialport,chardev=out{number},name={name}"),
    ]


def _root_and_network(wiring: Wiring) -> list[str]:
    file = {"driver": "file", "filename": str(wiring.root_overlay), "cache": CACHE}
    root = {"driver": "qcow2", "node-name": "root", "cache": CACHE, "file": file}
    return [
        *("-blockdev", json.dumps(root), "-device", "virtio-blk-pci,drive=root"),
        # The guest reaches the host's loopback as 10.0.2.2.
        *("-netdev", f"user,id={NETWORK},ipv6=off", "-device", f"virtio-net-pci,netdev={NETWORK},romfile="),
        *("-device", "virtio-rng-pci"),
    ]


def _ports() -> list[str]:
    # Without I/O space: 4 KiB for each port would exceed the total of 64 KiB, and the disks need none.
    devices = (
        f"pcie-root-port,id={port},bus=pcie.0,addr={slot:#x},chassis={slot},io-reserve=0"
        for slot, port in enumerate(PORTS, start=_FIRST_PORT_SLOT)
    )
    return [argument for device in devices for argument in ("-device", device)]


def _disk(disk: Disk, port: str) -> list[str]:
    return [
        *("-object", json.dumps(disk.throttle_group())),
        *("-blockdev", json.dumps(disk.block_node())),
        *("-device", json.dumps(disk.device(port))),
    ]


def _escaped(path: Path) -> str:
    # QEMU's options are separated by commas; a doubled comma is a literal one.
    return str(path).replace(",", ",,")
