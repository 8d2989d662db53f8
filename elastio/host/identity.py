"""The machine's identity, without a call to the cloud."""

from __future__ import annotations

import re
from uuid import UUID

from elastio.host.sysfs import Sysfs

DMI = "sys/class/dmi/id"
# Set by the firmware of EC2's Nitro; elsewhere the tag is empty, or holds text of the hypervisor's vendor.
EC2_INSTANCE = re.compile(r"i-[0-9a-f]{8,32}")
# Default values of firmware that was not given a UUID.
NO_UUIDS = frozenset({"0" * 32, "f" * 32, "03000200040005000006000700080009"})


def machine_id(sysfs: Sysfs) -> str:
    """The instance's identity from its firmware, or an empty string where it has none.

    An EC2 instance ID, else the UUID that the hypervisor gave the machine, in lower case. Not /etc/machine-id: it is a
    file, and every copy of a disk has the same one. The firmware's identity does not depend on the disk.
    """
    tag = sysfs.read_or(f"{DMI}/board_asset_tag", "").lower()
    if EC2_INSTANCE.fullmatch(tag):
        return tag
    try:
        shown = UUID(sysfs.read_or(f"{DMI}/product_uuid", ""))
    except ValueError:
        return ""
    return "" if shown.hex in NO_UUIDS else str(shown)
