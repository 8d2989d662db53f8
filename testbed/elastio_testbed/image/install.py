"""Installation into the Debian root: configuration, a virtual environment, the checkout's systemd files."""

import shutil
import tempfile
from pathlib import Path

from elastio_testbed.image.debian import Suite
from elastio_testbed.image.tools import chroot
from elastio_testbed.image.wheels import dependency_wheels, project_wheel

VENV = Path("opt/elastio")
_OVERLAY = Path(__file__).parent / "overlay"
_COMMANDS = ("elastio", "elastiod")
_CONF_FOLDERS = ("sysusers.d", "tmpfiles.d", "modprobe.d", "modules-load.d")
_TIMEOUT_S = 300
# The AWS provider's trimmed SDK data: creating it takes half a minute in an emulated guest.
_SDK_DATA = "/var/cache/elastio/botocore"


def install(root: Path, checkout: Path, cache: Path, suite: Suite) -> None:
    """Install elastio into the Debian root at `root`: files, virtual environment, units, initramfs."""
    shutil.copytree(_OVERLAY, root, dirs_exist_ok=True, copy_function=_copy_plain)
    (root / "boot/efi").mkdir(exist_ok=True)
    _install_venv(root, checkout, dependency_wheels(checkout, cache, suite))
    _install_systemd(root, checkout / "systemd")
    # Last: the initramfs contains a copy of modprobe.d.
    chroot(root, ["update-initramfs", "-u"], timeout_s=_TIMEOUT_S)


def destination(source: Path) -> Path | None:
    """The place of a file of the checkout's systemd folder in the root; None: it is not installed."""
    if source.suffix in (".service", ".timer"):
        return Path("usr/lib/systemd/system") / source.name
    if source.suffix == ".rules":
        return Path("usr/lib/udev/rules.d") / source.name
    return Path("usr/lib") / source.parent.name / source.name if source.parent.name in _CONF_FOLDERS else None


def _install_venv(root: Path, checkout: Path, wheels: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="wheels-", dir=root / "opt") as staging:
        for wheel in wheels.iterdir():
            shutil.copy(wheel, staging)
        project_wheel(checkout, Path(staging))
        inside = "/" + str(Path(staging).relative_to(root))
        chroot(root, ["python3", "-m", "venv", f"/{VENV}"], timeout_s=_TIMEOUT_S)
        pip = [f"/{VENV}/bin/pip", "install", "--quiet", "--no-index", "--find-links", inside]
        chroot(root, [*pip, "elastio[aws,openstack]"], timeout_s=_TIMEOUT_S)
    chroot(root, [f"/{VENV}/bin/python", "-m", "elastio_aws.slim", _SDK_DATA], timeout_s=_TIMEOUT_S)
    for command in _COMMANDS:
        (root / "usr/bin" / command).symlink_to(f"/{VENV}/bin/{command}")


def _install_systemd(root: Path, folder: Path) -> None:
    installed = {source: destination(source) for source in sorted(folder.rglob("*")) if source.is_file()}
    for source, place in installed.items():
        if place is not None:
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            _copy_plain(str(source), str(root / place))
    enabled = ["systemd-networkd.service", "systemd-resolved.service"]
    if (root / "usr/lib/systemd/system/elastiod.service").exists():
        enabled.append("elastiod.service")
    chroot(root, ["systemctl", "enable", *enabled], timeout_s=_TIMEOUT_S)
    chroot(root, ["systemd-sysusers"], timeout_s=_TIMEOUT_S)


def _copy_plain(source: str, target: str) -> str:
    # Owner and mode of the checkout do not apply in the guest.
    shutil.copyfile(source, target)
    Path(target).chmod(0o644)
    return target
