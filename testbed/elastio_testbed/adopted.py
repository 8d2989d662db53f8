"""A guest whose data volume had its file system before it got an adaptive device."""

from __future__ import annotations

import json
from pathlib import Path

from elastio.config.paths import ADOPTED
from elastio.host.heads import LEAST_BYTES
from elastio_testbed.hypervisor import Disk
from elastio_testbed.machine import DATA, Guest, new_disk


class AdoptedGuest(Guest):
    """The head lies on a disk of its own."""

    @property
    def head_serial(self) -> str:
        return f"{self.name}head"

    def backing_device(self) -> str:
        """The kernel's name of the composed device; empty while there is none."""
        return self.check(["sh", "-c", "ls -d /sys/block/dm-*/bcache 2>/dev/null | cut -d/ -f4"])

    def _more_disks(self, folder: Path) -> list[Disk]:
        return [new_disk(folder, self.head_serial, LEAST_BYTES)]

    def _make_adaptive(self, device: str) -> str:
        return device  # not before it has its file system

    def _mount(self, device: str) -> None:
        """By /etc/fstab, as its owner did; then the adaptive device is put in front of the volume."""
        uuid = self.check(["blkid", "-p", "-s", "UUID", "-o", "value", device])
        line = f"UUID={uuid} {DATA} {self.filesystem} defaults,nofail 0 2"
        self.check(["sh", "-c", f"echo '{line}' >> /etc/fstab; systemctl daemon-reload; udevadm settle; mount {DATA}"])
        head = f"/dev/{self.disk_name(self.head_serial)}"
        self.check(["elastio", "device", "adopt", DATA, "--head", head, "--yes"], timeout_s=180)
        record = json.loads(self.vm.agent.read_file(f"/{ADOPTED}/{uuid}"))
        self.backing_uuid = record["head"]["backing_uuid"]
