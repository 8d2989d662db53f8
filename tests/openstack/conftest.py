"""One guest of a real OpenStack for all tests, replaced only after a failed run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elastio_testbed.image import build_guest_image
from elastio_testbed.openstack.faults import Runner
from elastio_testbed.openstack.lab import open_lab

SEED = 1


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """Starts missing services; they continue to run afterwards."""
    lab = open_lab(print)
    lab.up(print)
    with Runner(lab, build_guest_image(), SEED, print) as made:
        yield made
