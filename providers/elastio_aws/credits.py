"""The credits of EBS's HDD volume types. No network.

Source: AWS, *Throughput Optimized HDD and Cold HDD volumes*, EBS User Guide, whose MiB/s are MB/s here.
"""

from __future__ import annotations

from elastio.strategy.credits import CreditRule
from elastio.units import MB, MIB


def _rule(base: float, burst: float, most_base: float, most_burst: float) -> CreditRule:
    """From MiB/s per TiB, and the most of each in MiB/s."""
    return CreditRule(*(rate * MIB / MB for rate in (base, burst, most_base, most_burst)))


RULES = {"st1": _rule(40, 250, 500, 500), "sc1": _rule(12, 80, 192, 250)}


def credit_rule(volume_type: str) -> CreditRule | None:
    """How the type derives its rates from the size; None: it has no credits."""
    return RULES.get(volume_type)
