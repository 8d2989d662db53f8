"""The policy of a configuration whose backing volume has credits by its type. No cloud is asked."""

from __future__ import annotations

from dataclasses import replace

from elastio import registry
from elastio.config.schema import Config
from elastio.core.credits import CreditBucket
from elastio.core.policy import Policy
from elastio.errors import ConfigError
from elastio.units import GIB


def policy_of(config: Config) -> Policy:
    """The settings as the core uses them, with the credits of device.volume_type. Raises ConfigError."""
    policy = config.policy()
    bucket = _by_type(config)
    if bucket is None:
        return policy
    return replace(policy, backing_bandwidth_mb_s=bucket.burst_mb_s, backing_credits=bucket)


def _by_type(config: Config) -> CreditBucket | None:
    """The bucket of the volume's type and size, with a burst rate of at most device.bandwidth_mb_s."""
    device = config.device
    if device.volume_type is None or device.volume_size_gib is None:
        return None
    rule = registry.credit_rule(config.provider.name, device.volume_type)
    if rule is None:
        raise ConfigError(
            f"the provider {config.provider.name} knows no credits of the volume type {device.volume_type}: set "
            "device.base_bandwidth_mb_s and device.credits_gib instead",
            code="device.volume_type",
        )
    sold = rule.bucket(device.volume_size_gib * GIB)
    burst = min(sold.burst_mb_s, device.bandwidth_mb_s)
    return CreditBucket(min(sold.base_mb_s, burst), burst, sold.capacity_bytes)
