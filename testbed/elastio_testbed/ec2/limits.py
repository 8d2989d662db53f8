"""EC2's limits: the gp3 volume type, device names, the account's quota."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elastio_testbed.ec2.store import LabVolume

# CreateVolume, EC2 API reference of 2026: size in GiB, IOPS, MiB/s.
_GP3_RANGES = {"Size": (1, 65_536), "Iops": (3_000, 80_000), "Throughput": (125, 2_000)}
_GP3_IOPS_PER_GIB = 500
_GP3_IOPS_PER_MIB_S = 4  # 0.25 MiB/s per IOPS
# HVM instances, EC2 user guide, "Device names for volumes on Amazon EC2 instances": only the names listed there.
_DEVICE_NAME = re.compile(r"/dev/(sd[a-z]|sda1|xvda|xvd[a-d][a-x]|xvd[e-z])")
# EbsInfo.MaximumEbsAttachments of an unknown instance type.
_DEFAULT_ATTACHMENTS = 27


@dataclass(frozen=True)
class Quota:
    """The limits of an account in one region: number of volumes, and gp3 storage (by default EBS's 50 TiB)."""

    max_volumes: int = 5_000
    max_gib: int = 51_200


@dataclass(frozen=True)
class Refusal:
    """An EC2 error code and its message."""

    code: str
    message: str


def refuse_gp3(size_gib: int, iops: int, throughput_mib_s: int) -> Refusal | None:
    """The error for a gp3 volume of these parameters, or None."""
    for name, value in (("Size", size_gib), ("Iops", iops), ("Throughput", throughput_mib_s)):
        low, high = _GP3_RANGES[name]
        if not low <= value <= high:
            text = f"Volume {name.lower()} of {value} is out of range: {low} to {high} for gp3."
            return Refusal("InvalidParameterValue", text)
    if iops > max(_GP3_RANGES["Iops"][0], _GP3_IOPS_PER_GIB * size_gib):
        text = f"Iops to volume size ratio of {iops / size_gib:g} is too high; maximum is {_GP3_IOPS_PER_GIB}."
        return Refusal("InvalidParameterCombination", text)
    if throughput_mib_s * _GP3_IOPS_PER_MIB_S > iops:
        ratio = throughput_mib_s / iops
        text = f"Throughput (MiBps) to iops ratio of {ratio:g} is too high; maximum is 0.250000."
        return Refusal("InvalidParameterCombination", text)
    return None


def refuse_quota(quota: Quota, volumes: Iterable[LabVolume], size_gib: int) -> Refusal | None:
    """The error for one more volume of this size, or None within the quota."""
    sizes = [int(volume.size) for volume in volumes]
    if len(sizes) >= quota.max_volumes:
        return Refusal("VolumeLimitExceeded", f"The maximum of {quota.max_volumes} volumes is reached.")
    if sum(sizes) + size_gib > quota.max_gib:
        text = f"The maximum of {quota.max_gib} GiB of volumes would be exceeded."
        return Refusal("VolumeLimitExceeded", text)
    return None


def refuse_device(device: str) -> Refusal | None:
    """The error for a device name, or None."""
    if _DEVICE_NAME.fullmatch(device):
        return None
    text = f"Value ({device}) for parameter device is invalid. {device} is not a valid EBS device name."
    return Refusal("InvalidParameterValue", text)


def max_attachments(instance_types: Iterable[Mapping[str, object]]) -> int:
    """The maximum number of volumes of an instance, from the response of DescribeInstanceTypes for its type."""
    for instance_type in instance_types:
        info = instance_type.get("EbsInfo")
        if isinstance(info, Mapping) and isinstance(limit := info.get("MaximumEbsAttachments"), int):
            return limit
    return _DEFAULT_ATTACHMENTS
