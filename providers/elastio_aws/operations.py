"""The operations of EC2 that this package calls: the SDK's data are trimmed to them, and IAM policies allow them."""

from __future__ import annotations

# What the agent may always do.
AGENT = (
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
READING = tuple(name for name in AGENT if name.startswith(("Describe", "Get")))
# What it may do, in addition, while it takes over the cache of a machine that is gone.
TAKE_OVER = ("CreateTags", "DescribeInstanceStatus")
# Those of `elastio janitor`, which runs outside the machines.
JANITOR = ("DeleteVolume", "DescribeVolumes")
OPERATIONS = tuple(sorted({*AGENT, *TAKE_OVER, *JANITOR}))
