"""The credits of the backing volume: their balance by model, the bandwidth in force, what a flush may spend. Pure.

Theory of operation. A throughput-optimised or cold backing volume has no one bandwidth, see `credits`. Every sample of
throughput shows what the volume moved, from which its balance follows; no cloud is asked. Two things depend on it:

- The *bandwidth in force*, with which utilization is compared and with which the governor reckons, is what the volume
  can sustain for SUSTAINED_S with its balance: the burst rate while there are credits, down to the base rate as they
  run out. It falls evenly, so that no threshold is crossed to and fro.
- The *credit limit* is the most that a flush may take, so that the reserve stays for applications. It applies in both
  phases, except where the flush has to end soon: an operator, a notice or a shutdown waits for it, or the cache is
  nearly full and every write would run at the volume's speed.

The journal records the balance. After a start it is the recorded one less all that the volume can have spent since. A
balance that was never recorded is what the operator stated for a new volume, else 0: what is not known counts as used.

A device without a bucket has none of this: the functions return what they were given.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.model import Sample
from elastio.core.phase import Phase
from elastio.core.policy import Policy
from elastio.strategy.credits import CreditBalance, CreditBucket
from elastio.strategy.memory import Memory
from elastio.strategy.situation import DeviceView, Situation

# How long credits must last to count as bandwidth: longer than a sample, shorter than a burst worth a cache.
SUSTAINED_S = 60.0
# Samples follow one another without a gap but for rounding.
GAP_S = 0.001


def in_force(policy: Policy, memory: Memory) -> Policy:
    """The policy with the bandwidth that the backing volume has now; the same policy for one without credits."""
    bucket = policy.backing_credits
    if bucket is None:
        return policy
    balance = policy.first_credits_bytes if memory.credits is None else memory.credits.balance_bytes
    return replace(policy, backing_bandwidth_mb_s=bucket.sustained_mb_s(balance, SUSTAINED_S))


def update(memory: Memory, at: Situation, policy: Policy) -> Memory:
    """The memory with the sample's credits, and the most that they allow a flush. `policy` is the one in force."""
    bucket = policy.backing_credits
    if bucket is None or at.sample is None:
        return memory
    credits = _after(memory.credits, at.sample, bucket, policy)
    return replace(memory, credits=credits, credit_limit_mb_s=_limit(credits, at.sample, at.device, bucket))


def flush_limit_mb_s(memory: Memory, at: Situation, policy: Policy) -> float | None:
    """The most that a flush may take in phase 1; None: no limit, also where writes would run at the volume's speed."""
    is_urgent = at.phase is Phase.BOOSTING and at.device is not None and at.device.is_nearly_full
    return None if is_urgent or policy.backing_credits is None else memory.credit_limit_mb_s


def _after(before: CreditBalance | None, sample: Sample, bucket: CreditBucket, policy: Policy) -> CreditBalance:
    begun = sample.at - sample.seconds
    if before is None:
        before = CreditBalance(min(policy.first_credits_bytes, bucket.capacity_bytes), begun)
    if begun - before.at > GAP_S:
        before = before.unobserved(bucket, begun)
    after = before.observed(bucket, sample.backing.total_mb_s, sample.seconds)
    return replace(after, at=sample.at)


def _limit(credits: CreditBalance, sample: Sample, device: DeviceView | None, bucket: CreditBucket) -> float | None:
    if device is None or not device.has_cache:
        return None
    applications = max(0.0, sample.backing.total_mb_s - sample.flushed_mb_s)
    return bucket.flush_limit_mb_s(credits.balance_bytes, device.dirty_bytes, applications)
