"""[device]: the backing device, and the credits of its volume if it has them."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.config.rules import Number, Text, key, refuse
from elastio.core.credits import CreditBucket
from elastio.errors import ConfigError
from elastio.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSection:
    """[device]: the backing device."""

    backing_uuid: str = key(Text("bcache UUID of the backing device, as `elastio device create` prints it", "uuid"))
    bandwidth_mb_s: float = key(
        Number("bandwidth of the backing volume, in MB/s; of a volume with credits, that with credits", above=0)
    )
    price_per_month: float | None = key(
        Number(
            "price of the backing volume for a month of 720 h, in the currency of the provider, for reports; default: "
            "the provider's price of a volume of its size and bandwidth",
            least=0,
        ),
        None,
    )
    base_bandwidth_mb_s: float | None = key(
        Number("bandwidth of a backing volume without credits, in MB/s; default: it has no credits", above=0), None
    )
    credits_gib: float | None = key(
        Number("credits of a full bucket, in GiB; required with base_bandwidth_mb_s", above=0), None
    )
    volume_type: str | None = key(
        Text("type of a backing volume whose credits the provider knows, in place of these two: st1 or sc1", "word"),
        None,
    )
    volume_size_gib: float | None = key(
        Number("size of the backing volume, in GiB; required with volume_type", above=0), None
    )
    first_credits_gib: float = key(
        Number(
            "credits of the backing volume when the agent first runs, in GiB, if it is new: what is not known counts "
            "as used",
            least=0,
        ),
        0.0,
    )

    @property
    def bucket(self) -> CreditBucket | None:
        """The configured bucket; None: the volume has none, or its type decides."""
        if self.base_bandwidth_mb_s is None or self.credits_gib is None:
            return None
        return CreditBucket(self.base_bandwidth_mb_s, self.bandwidth_mb_s, self.credits_gib * GIB)


def check_credits(device: DeviceSection) -> None:
    """Refuse keys about credits that do not fit one another. Raises ConfigError; its code is the key."""
    base, credits = device.base_bandwidth_mb_s, device.credits_gib
    for first, value, other, needed in (
        ("base_bandwidth_mb_s", base, "credits_gib", credits),
        ("credits_gib", credits, "base_bandwidth_mb_s", base),
        ("volume_type", device.volume_type, "volume_size_gib", device.volume_size_gib),
        ("volume_size_gib", device.volume_size_gib, "volume_type", device.volume_type),
    ):
        if value is not None and needed is None:
            raise ConfigError(f"device.{first} is set without device.{other}: set both", code=f"device.{other}")
    if base is not None and device.volume_type is not None:
        raise ConfigError(
            "device.volume_type and device.base_bandwidth_mb_s are both set: keep one, each decides about credits",
            code="device.volume_type",
        )
    if base is not None and base >= device.bandwidth_mb_s:
        raise refuse("device.base_bandwidth_mb_s", base, f"below device.bandwidth_mb_s ({device.bandwidth_mb_s:g})")
    if device.first_credits_gib and (base, device.volume_type) == (None, None):
        raise ConfigError(
            "device.first_credits_gib is set for a volume without credits: set device.base_bandwidth_mb_s and "
            "device.credits_gib, or device.volume_type",
            code="device.first_credits_gib",
        )
