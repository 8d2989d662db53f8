"""Which machine is this, without asking a cloud?"""

from __future__ import annotations

import re
from uuid import UUID

from elastio.host.sysfs import Sysfs

DMI = "sys/class/dmi/id"
# EC2's Nitro firmware shows it; elsewhere the tag is empty, or whatever the hypervisor's vendor writes.
EC2_INSTANCE = re.compile(r"i-[0-9a-f]{8,32}")
# What firmware shows that was never given a UUID.
NO_UUIDS = frozenset({"0" * 32, "f" * 32, "03000200040005000006000700080009"})


def machine_id(sysfs: Sysfs) -> str:
    """The instance's identity as its firmware shows it, or an empty string where it shows none.

    An EC2 instance id, else the UUID that the hypervisor gave the machine, in lower case. Not /etc/machine-id: that is
    a file, so each copy of a disk has the same one. The firmware's is the instance's own, whatever it was started from.
    """
    tag = sysfs.read_or(f"{DMI}/board_asset_tag", "").lower()
    if EC2_INSTANCE.fullmatch(tag):
        return tag
    try:
        shown = UUID(sysfs.read_or(f"{DMI}/product_uuid", ""))
    except ValueError:
        return ""
    return "" if shown.hex in NO_UUIDS else str(shown)
