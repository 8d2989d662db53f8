"""Layer 1: the Debian root, as one tar file."""

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
# Raised when what is done below changes while the package list does not.
_RECIPE = 1
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
# Each machine makes its own identity: an empty machine-id is filled in at boot without a first-boot set-up.
_ANONYMOUS = 'rm -f "$1"/etc/ssh/ssh_host_* && : > "$1/etc/machine-id"'
_TIMEOUT_S = 1800


def debian_root(cache: Path) -> Path:
    """Path of the Debian root's tar file, built with mmdebstrap when the cache has none."""
    digest = digest_of([SUITE, str(_RECIPE), *PACKAGES, *_EXCLUDED, _ANONYMOUS])
    return cached(cache / f"debian-{digest}", _bootstrap) / "root.tar"


def _bootstrap(directory: Path) -> None:
    excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED]
    packages = ",".join(PACKAGES)
    options = ["--variant=minbase", f"--include={packages}", *excluded, f"--customize-hook={_ANONYMOUS}"]
    run(["mmdebstrap", *options, SUITE, str(directory / "root.tar")], timeout_s=_TIMEOUT_S)
