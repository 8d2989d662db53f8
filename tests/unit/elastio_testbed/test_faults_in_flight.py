"""Writes in flight, parsed from the kernel's trace."""

import pytest

from elastio_testbed.faults.in_flight import Store, parse
from elastio_testbed.hypervisor import GuestError

TRACE = r"""# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
         python3-812     [001] .....    12.000001: begun: (bio_start_io_acct+0x0/0x40) operation=34817
         python3-813     [000] .....    12.000002: begun: (bio_start_io_acct+0x0/0x40) operation=34817
  elastiod-700  [001] ..... 12.000004: store: (bch_cached_dev_store+0x0/0x90) attribute="attach" value="aa-bb"
          <idle>-0       [000] d.s1.    12.000005: ended: (bio_end_io_acct_remapped+0x0/0x70) operation=34817
          <idle>-0       [000] d.s1.    12.000006: ended: (bio_end_io_acct_remapped+0x0/0x70) operation=34817
  elastiod-700  [001] ..... 12.000007: store: (bch_cached_dev_store+0x0/0x90) attribute="cache_mode" value="none
"
"""


def test_each_switch_has_the_number_of_writes_in_flight() -> None:
    found = parse(TRACE)
    assert found.stores == (Store("attach", "aa-bb", 2), Store("cache_mode", "none", 0))
    assert all(store.is_switch for store in found.stores)
    assert found.most_writes == 2


def test_other_attributes_and_modes_are_not_a_switch() -> None:
    assert not Store("cache_mode", "writeback", 3).is_switch
    assert not Store("writeback_rate", "0", 3).is_switch


def test_a_trace_with_a_gap_is_rejected() -> None:
    with pytest.raises(GuestError):
        parse(TRACE + "CPU:1 [LOST 42 EVENTS]\n")
