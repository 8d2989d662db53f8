"""The errors of virtual machines."""


class HypervisorError(Exception):
    """QEMU failed, or refused a request."""


class GuestHoldsDisk(HypervisorError):
    """The guest has not released a disk in time; the disk is still plugged."""


class GuestError(HypervisorError):
    """The guest, or the agent in it, failed; the message ends with the console's last lines."""


class GuestTimeout(GuestError):
    """The guest did not answer in time; the message ends with the console's last lines."""
