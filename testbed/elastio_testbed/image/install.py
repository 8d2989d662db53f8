"""Installation into the Debian root: configuration, and the Debian package of a checkout."""

import shutil
from pathlib import Path

from elastio_testbed.image.package import install_package
from elastio_testbed.image.tools import chroot

OVERLAY = Path(__file__).parent / "overlay"
_TIMEOUT_S = 300
# The modules of the package, and the AWS provider's trimmed SDK data: creating it takes half a minute in an emulated
# guest.
_MODULES, _SDK_DATA = "/usr/share/elastio", "/var/cache/elastio/botocore"


def install(root: Path, package: Path) -> None:
    """Install the guest's own files and the package into the Debian root at `root`. Raises ImageError."""
    shutil.copytree(OVERLAY, root, dirs_exist_ok=True, copy_function=_copy_plain)
    (root / "boot/efi").mkdir(exist_ok=True)
    # After the overlay: the package's trigger makes the initramfs, which contains copies of both.
    install_package(root, package)
    trim = ["env", f"PYTHONPATH={_MODULES}", "python3", "-B", "-m", "elastio_aws.slim", _SDK_DATA]
    chroot(root, trim, timeout_s=_TIMEOUT_S)
    chroot(root, ["systemctl", "enable", "systemd-networkd.service", "systemd-resolved.service"], timeout_s=_TIMEOUT_S)


def _copy_plain(source: str, target: str) -> str:
    # Owner and mode of the checkout do not apply in the guest.
    shutil.copyfile(source, target)
    Path(target).chmod(0o644)
    return target
