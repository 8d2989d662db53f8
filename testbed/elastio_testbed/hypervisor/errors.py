"""What goes wrong with a virtual machine, as a small tree."""


class HypervisorError(Exception):
    """QEMU did not do what it was asked to do."""


class GuestHoldsDisk(HypervisorError):
    """The guest did not let go of a disk in time; the disk is still plugged."""


class GuestError(HypervisorError):
    """The guest, or the agent in it, failed; the message ends with the console's last lines."""


class GuestTimeout(GuestError):
    """The guest did not answer in time; the message ends with the console's last lines."""
