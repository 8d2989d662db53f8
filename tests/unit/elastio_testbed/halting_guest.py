"""An image whose kernel only halts, for tests with a real QEMU and no operating system."""

from pathlib import Path

from elastio_testbed.image import GuestImage


def halting_image(folder: Path) -> GuestImage:
    """A root without a file system and a kernel that turns interrupts off and halts."""
    names = ("root.ext4", "vmlinuz", "initrd.img", "bootx64.efi")
    root, kernel, initrd, bootloader = (folder / name for name in names)
    kernel.write_bytes(halting_kernel())
    initrd.write_bytes(bytes(4096))
    with root.open("wb") as file:
        file.truncate(1 << 20)
    return GuestImage(root, kernel, initrd, bootloader, "digest", "bookworm")


def halting_kernel() -> bytes:
    """The smallest kernel that QEMU loads by Linux's x86 boot protocol (Documentation/arch/x86/boot.rst)."""
    kernel = bytearray(4096)
    kernel[0x1F1] = 1  # one sector of set-up code
    kernel[0x200:0x202] = b"\xeb\x66"  # its entry: a jump over the header, to 0x268
    kernel[0x202:0x208] = b"HdrS\x0c\x02"
    kernel[0x211] = 1  # loaded high
    kernel[0x22C:0x230] = b"\xff\xff\xff\x7f"  # highest address of an initrd
    kernel[0x268:0x26C] = b"\xfa\xf4\xeb\xfd"  # cli; hlt; in a loop
    return bytes(kernel)
