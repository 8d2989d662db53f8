"""GRUB for UEFI, from the packages in the root."""

import shutil
from pathlib import Path

from elastio_testbed.image.tools import chroot

_GRUB_MODULES = ("part_gpt", "ext2", "search", "search_label", "normal", "configfile", "linux", "echo", "all_video")
_GRUB_EARLY = "search --no-floppy --label elastio-root --set root\nset prefix=($root)/boot/grub\n"
_TIMEOUT_S = 60


def make_bootloader(root: Path, target: Path) -> None:
    """Write a UEFI program of the root's GRUB to `target`; it reads /boot/grub/grub.cfg."""
    early, program = root / "tmp/early.cfg", root / "tmp/grub.efi"
    early.write_text(_GRUB_EARLY)
    options = ["--format", "x86_64-efi", "--config", "/tmp/early.cfg", "--output", "/tmp/grub.efi"]
    chroot(root, ["grub-mkimage", *options, "--prefix", "/boot/grub", *_GRUB_MODULES], timeout_s=_TIMEOUT_S)
    shutil.move(program, target)
    early.unlink()
