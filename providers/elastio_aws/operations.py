"""The operations of EC2 that this package calls: the SDK's data are trimmed to them, and the IAM policy allows them."""

from __future__ import annotations

OPERATIONS = (
    "AttachVolume",
    "CreateTags",
    "CreateVolume",
    "DeleteVolume",
    "DescribeInstanceTypes",
    "DescribeVolumes",
    "DetachVolume",
    "GetEbsDefaultKmsKeyId",
    "GetEbsEncryptionByDefault",
)
# Those that read. IAM has no condition that would restrict them to some volumes.
READING = tuple(name for name in OPERATIONS if name.startswith(("Describe", "Get")))
# Those of `elastio janitor`, which runs outside the machines.
JANITOR = ("DeleteVolume", "DescribeVolumes")
