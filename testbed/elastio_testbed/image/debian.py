"""Layer 1: the Debian root, as one tar file."""

import os
from collections.abc import Sequence
from pathlib import Path

from elastio_testbed.image.cache import cached, digest_of
from elastio_testbed.image.tools import ImageError, run

# Kernel 6.1, and kernel 6.12.
SUITES = ("bookworm", "trixie")
DEFAULT_SUITE = "bookworm"
PACKAGES = (
    "linux-image-cloud-amd64",
    "systemd-sysv",
    "systemd-resolved",
    "dbus",
    "udev",
    "initramfs-tools",
    "kmod",
    "e2fsprogs",
    "xfsprogs",
    "dmsetup",
    "util-linux",
    "iproute2",
    "python3",
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
# Applications of the experiments, and LVM: 330 MB, in an image of their own.
TOOLS = ("lammps", "bonnie++", "lvm2")
# What a release has in a package beside another one: Debian 13 the units that open LUKS by /etc/crypttab.
BESIDE = {("trixie", "cryptsetup-bin"): "systemd-cryptsetup"}
# Increment this when the steps below change and the package list does not.
_RECIPE = 1
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
# Machines create their own identities: an empty machine-id is filled in at boot, without a first-boot set-up.
_ANONYMOUS = 'rm -f "$1"/etc/ssh/ssh_host_* && : > "$1/etc/machine-id"'
_TIMEOUT_S = 1800


def chosen_suite(wanted: str | None = None) -> str:
    """The suite of that name, else that of $ELASTIO_SUITE, else Debian 12. Raises ImageError for an unknown name."""
    name = wanted or os.environ.get("ELASTIO_SUITE") or DEFAULT_SUITE
    if name not in SUITES:
        raise ImageError(f"the suite {name!r} is not supported; use one of {', '.join(SUITES)}")
    return name


def debian_root(cache: Path, suite: str, more: Sequence[str]) -> Path:
    """The tar file of a Debian root with PACKAGES and `more`; mmdebstrap builds it if the cache has none."""
    packages = (*PACKAGES, *more, *(BESIDE[suite, name] for name in more if (suite, name) in BESIDE))
    digest = digest_of([str(_RECIPE), *packages, *_EXCLUDED, _ANONYMOUS])
    entry = cache / f"debian-{suite}-{digest}"
    return cached(entry, lambda unfinished: _bootstrap(unfinished, suite, packages)) / "root.tar"


def _bootstrap(directory: Path, suite: str, packages: Sequence[str]) -> None:
    excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED]
    options = ["--variant=minbase", f"--include={','.join(packages)}", *excluded, f"--customize-hook={_ANONYMOUS}"]
    run(["mmdebstrap", *options, suite, str(directory / "root.tar")], timeout_s=_TIMEOUT_S)
