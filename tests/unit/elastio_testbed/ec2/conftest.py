"""An endpoint whose transitions take no time, and an account there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio_testbed.ec2 import Ec2Endpoint, Scale

from .account import Account

SCALE = Scale(gib_bytes=2**20, mib_s_bytes=2**10)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Ec2Endpoint]:
    with Ec2Endpoint(tmp_path / "volumes", scale=SCALE, latency_scale=0, rate_limits=False) as running:
        yield running


@pytest.fixture
def account(endpoint: Ec2Endpoint) -> Account:
    return Account(endpoint)
