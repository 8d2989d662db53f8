"""What the laboratory asks of a machine. `qemu` and `uml` implement it; one suite of tests holds both to it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, Self

from elastio_testbed.hypervisor.disk import Driver
from elastio_testbed.hypervisor.programs import Programs


class Machine(Protocol):
    """One guest with a root of its own over the image's.

    Disks stay plugged across `kill`, `shutdown` and `start`. Calls for different disks may come from different
    threads; calls for one disk must not be concurrent. Use as a context manager; the machine ends at its exit, and with
    the process that started it. Calls raise HypervisorError.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def alive(self) -> bool:
        """Whether the machine is running."""

    @property
    def is_starting(self) -> bool:
        """The disks of the next boot are chosen, and the machine does not have them yet."""

    @property
    def agent(self) -> Programs:
        """The agent of the running machine."""

    @property
    def console(self) -> Path:
        """The file with the console's output of all starts."""

    def console_tail(self) -> str:
        """The console's last lines."""

    def disks(self) -> tuple[str, ...]:
        """Serials of the plugged disks in the order of plugging, also while the machine is off."""

    def files(self) -> dict[str, Path]:
        """The files of the plugged disks, by serial."""

    def limits(self) -> dict[str, int | None]:
        """The limits of the plugged disks in bytes per second, by serial; None where there is none."""

    def moved_bytes(self, serial: str) -> int:
        """Bytes that the guest has read from and written to a disk since it was plugged, or since the last start."""

    def forward(self, host_port: int, guest_port: int) -> None:
        """Pass connections to this port of the host's loopback on to the guest, until it is switched off.

        Raises HypervisorError if the port is taken, or the hypervisor cannot do it.
        """

    def start(self, timeout_s: float) -> None:
        """Power on and wait until programs can be run.

        Raises HypervisorError when the machine does not start, and GuestTimeout when the guest does not boot in time;
        it then continues to run, for inspection, until `kill` or `close`.
        """

    def shutdown(self, timeout_s: float) -> bool:
        """Power off in order; False when the guest was still on after `timeout_s` and was killed."""

    def await_off(self, timeout_s: float) -> bool:
        """Wait for the end of a guest that reboots or powers off; False when it was killed after `timeout_s`."""

    def kill(self) -> None:
        """Cut the power: completed writes are in the disks' files, the rest is lost."""

    def close(self) -> None:
        """End the machine and delete temporary files. The caller owns the disks' files."""

    def plug(
        self,
        serial: str,
        path: Path,
        *,
        bytes_per_second: int,
        iops: int | None = None,
        driver: Driver = "virtio-blk",
    ) -> None:
        """Hot-plug the raw file `path` as a disk with limits on the sum of reads and writes.

        Idempotent. Raises HypervisorError when the serial is used with another path, no place is free, or the machine
        refuses or lacks the driver; then nothing was changed.
        """

    def unplug(self, serial: str, timeout_s: float) -> None:
        """Ask the guest to release a disk, and remove it.

        Raises GuestHoldsDisk when it has not released the disk after `timeout_s`; a later `unplug` completes it. Raises
        HypervisorError for a disk that is not plugged.
        """

    def pull(self, serial: str, timeout_s: float = 20.0) -> None:
        """Remove a disk by surprise.

        At once all requests fail with EIO, also throttled ones, and the file is closed. Then the device is removed as
        in `unplug`, so the guest sees a dead disk for some milliseconds, which a cloud's forced detach may not show.
        Raises GuestHoldsDisk when the guest keeps the dead device; `unplug` may be repeated. A dead disk is not plugged
        at the next start.
        """

    def set_limit(self, serial: str, bytes_per_second: int | None, iops: int | None = None) -> None:
        """Replace both limits of a plugged disk at run time; None lifts one. They persist across a restart."""
