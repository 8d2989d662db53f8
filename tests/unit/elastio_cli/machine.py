"""A machine in a folder: /sys, /proc and the files that packages install."""

from __future__ import annotations

from pathlib import Path

UUID = "01234567-89ab-cdef-0123-456789abcdef"
LEAST = (
    f'[device]\nbacking_uuid = "{UUID}"\nbandwidth_mb_s = 60\n[cache]\nbandwidth_mb_s = 128\n[provider]\nname = "toy"\n'
)
ROOT_MOUNT = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
GIVEN = ("--bandwidth", "60", "--cache-bandwidth", "128.5", "--provider", "toy")


def lay(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def backing(root: Path, disk: str = "vdb", uuid: str = UUID, adaptive: str = "bcache0") -> None:
    """A running backing device as the kernel shows it."""
    for block in (root / "sys/class/block" / disk, root / "sys/block" / disk):
        block.mkdir(parents=True)
        (block / "size").write_text("2097152")
        (block / "bcache").mkdir()
        (block / "bcache/backing_dev_uuid").write_text(uuid)
        (block / "bcache/state").write_text("no cache")
        (block / "bcache/sequential_cutoff").write_text("0.0k")
        (block / "bcache/dev").symlink_to(f"../../../virtual/block/{adaptive}")
        (block / "queue").mkdir()
        (block / "queue/logical_block_size").write_text("512")
        (block / "queue/scheduler").write_text("none [mq-deadline]")
    (root / "sys/block" / adaptive / "queue").mkdir(parents=True)
    (root / "sys/block" / adaptive / "queue/logical_block_size").write_text("512")
    (root / "sys/block" / adaptive / "dev").write_text("250:99")
