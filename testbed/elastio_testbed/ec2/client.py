"""A boto3 client of the endpoint."""

from __future__ import annotations

from functools import cache
from typing import Any

import boto3
from botocore.config import Config

from elastio_testbed.ec2.endpoint import Ec2Endpoint


def open_client(endpoint: Ec2Endpoint, *, attempts: int = 1, read_timeout_s: float = 10.0) -> Any:
    """An EC2 client of the endpoint. `attempts` 1: no retries, so that a test sees each response."""
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=5,
        read_timeout=read_timeout_s,
    )
    return _session().client("ec2", endpoint_url=endpoint.url, region_name=endpoint.region, config=config)


@cache
def _session() -> Any:
    # Shared: creating one parses the EC2 model, which takes most of a second.
    return boto3.Session(aws_access_key_id="laboratory", aws_secret_access_key="laboratory")
