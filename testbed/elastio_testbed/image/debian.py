"""Layer 1: the Debian root, as one tar file."""

from collections.abc import Sequence
from pathlib import Path

from elastio_testbed.image.cache import cached, digest_of
from elastio_testbed.image.tools import run

SUITE = "bookworm"
PACKAGES = (
    "linux-image-cloud-amd64",
    "systemd-sysv",
    "systemd-resolved",
    "dbus",
    "udev",
    "initramfs-tools",
    "kmod",
    "e2fsprogs",
    "util-linux",
    "iproute2",
    "bcache-tools",
    "python3",
    "python3-venv",
    "qemu-guest-agent",
    "fio",
    # For users of the image on a cloud.
    "ca-certificates",
    "cloud-init",
    "cloud-guest-utils",
    "grub-efi-amd64-bin",
    "openssh-server",
    "sudo",
)
# Real applications of the experiments, and LVM: 330 MB that only their own image has.
TOOLS = ("lammps", "bonnie++", "lvm2")
# Raised when what is done below changes while the package list does not.
_RECIPE = 1
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
# Each machine makes its own identity: an empty machine-id is filled in at boot without a first-boot set-up.
_ANONYMOUS = 'rm -f "$1"/etc/ssh/ssh_host_* && : > "$1/etc/machine-id"'
_TIMEOUT_S = 1800


def debian_root(cache: Path, *, tools: bool = False) -> Path:
    """Path of the Debian root's tar file, with or without TOOLS; built with mmdebstrap when the cache has none."""
    packages = (*PACKAGES, *TOOLS) if tools else PACKAGES
    digest = digest_of([SUITE, str(_RECIPE), *packages, *_EXCLUDED, _ANONYMOUS])
    return cached(cache / f"debian-{digest}", lambda unfinished: _bootstrap(unfinished, packages)) / "root.tar"


def _bootstrap(directory: Path, packages: Sequence[str]) -> None:
    excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED]
    options = ["--variant=minbase", f"--include={','.join(packages)}", *excluded, f"--customize-hook={_ANONYMOUS}"]
    run(["mmdebstrap", *options, SUITE, str(directory / "root.tar")], timeout_s=_TIMEOUT_S)
