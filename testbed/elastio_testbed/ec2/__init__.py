"""An EC2-compatible endpoint with the life cycle of EBS volumes, for guests of the laboratory."""

from elastio_testbed.ec2.bridge import Scale
from elastio_testbed.ec2.client import open_client
from elastio_testbed.ec2.endpoint import Ec2Endpoint
from elastio_testbed.ec2.faults import Fault, FaultKind
from elastio_testbed.ec2.limits import Quota
from elastio_testbed.ec2.memory import MemoryBridge
from elastio_testbed.ec2.rows import Purchase

__all__ = [
    "Ec2Endpoint",
    "Fault",
    "FaultKind",
    "MemoryBridge",
    "Purchase",
    "Quota",
    "Scale",
    "open_client",
]
