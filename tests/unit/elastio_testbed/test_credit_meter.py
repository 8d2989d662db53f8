"""The bucket of a laboratory disk: base 6 MB/s, burst 40, and 10 GB when it is full."""

from __future__ import annotations

import pytest

from elastio.strategy.credits import CreditBucket
from elastio.units import GB, MB
from elastio_testbed.hypervisor import CreditMeter, HypervisorError
from elastio_testbed.hypervisor.credit_meter import POLL_S

SERIAL = "vm0backing"
BUCKET = CreditBucket(6.0, 40.0, 10 * GB)


class Machine:
    """A disk whose guest moves all that its limit allows, or what it is told to."""

    def __init__(self) -> None:
        self.at, self.moved, self.limits = 100.0, 5 * GB, [0]
        self.is_lost = False

    def now(self) -> float:
        return self.at

    def moved_bytes(self, serial: str) -> int:
        assert serial == SERIAL
        if self.is_lost:
            raise HypervisorError("the machine is not running")
        return self.moved

    def set_limit(self, serial: str, bytes_per_second: int | None, iops: int | None = None) -> None:
        assert serial == SERIAL
        assert bytes_per_second is not None
        self.limits.append(bytes_per_second)

    def passes(self, seconds: float, mb_s: float | None = None) -> None:
        self.at += seconds
        self.moved += int((self.limits[-1] if mb_s is None else mb_s * MB) * seconds)


def meter(machine: Machine, first_bytes: float) -> CreditMeter:
    """With what was moved before not counted."""
    found = CreditMeter(machine, SERIAL, BUCKET, first_bytes, now=machine.now)
    found.turn()
    return found


def test_a_disk_with_credits_has_its_burst_rate_and_spends_what_it_moves_beyond_the_base() -> None:
    machine = Machine()
    metered = meter(machine, GB)
    machine.passes(10.0)
    metered.turn()
    assert machine.limits[1:] == [40 * MB]
    assert metered.balance_bytes == GB - 340 * MB
    machine.passes(10.0, 0.0)
    metered.turn()
    assert (metered.balance_bytes, metered.least_share) == (GB - 280 * MB, 0.066)


def test_a_disk_never_moves_what_it_has_no_credits_for() -> None:
    machine = Machine()
    metered = meter(machine, 100 * MB)
    moved = machine.moved
    for _ in range(200):
        machine.passes(POLL_S)
        metered.turn()
    assert machine.limits[-1] == pytest.approx(6 * MB, rel=0.03)
    # What it had, what it earned, and the change of limit that is too small to be set.
    assert machine.moved - moved <= 100 * MB + 6 * MB * 200 * POLL_S * 1.03
    assert metered.least_share < 0.001


def test_credits_are_never_more_than_a_full_bucket() -> None:
    machine = Machine()
    metered = meter(machine, 50 * GB)
    assert metered.least_share == 1.0
    machine.passes(1000.0, 0.0)
    metered.turn()
    assert metered.balance_bytes == 10 * GB


def test_the_limit_rises_again_with_the_balance() -> None:
    machine = Machine()
    metered = meter(machine, 0.0)
    assert machine.limits[-1] == 6 * MB
    machine.passes(60.0, 0.0)
    metered.turn()
    assert machine.limits[-1] == 40 * MB


def test_it_counts_by_itself_until_it_is_stopped() -> None:
    machine = Machine()
    with CreditMeter(machine, SERIAL, BUCKET, GB, now=machine.now) as metered:
        metered.start()
        machine.passes(1.0)
        metered.stop()
        assert metered.balance_bytes == GB - 34 * MB


def test_a_disk_that_was_lost_is_an_error_of_the_run() -> None:
    machine = Machine()
    with CreditMeter(machine, SERIAL, BUCKET, GB, now=machine.now) as metered:
        metered.start()
        machine.is_lost = True
        with pytest.raises(HypervisorError):
            metered.stop()
