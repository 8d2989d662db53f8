"""An EC2-compatible endpoint with the life cycle of EBS volumes, for guests of the laboratory."""

from elastio_testbed.ec2.bridge import DiskBridge, Scale, serial_of
from elastio_testbed.ec2.client import open_client
from elastio_testbed.ec2.endpoint import Ec2Endpoint
from elastio_testbed.ec2.faults import Fault, FaultKind
from elastio_testbed.ec2.limits import Quota
from elastio_testbed.ec2.log import LogEntry
from elastio_testbed.ec2.memory import MemoryBridge, MemoryDisk
from elastio_testbed.ec2.rows import VolumeRow

__all__ = [
    "DiskBridge",
    "Ec2Endpoint",
    "Fault",
    "FaultKind",
    "LogEntry",
    "MemoryBridge",
    "MemoryDisk",
    "Quota",
    "Scale",
    "VolumeRow",
    "open_client",
    "serial_of",
]
