"""What really was bought, compared with caps and with what it is worth: the cloud's bill is asked and no agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastio.core.model import VolumeSpec
from elastio.strategy.memory import BurstLesson
from elastio.strategy.spending import Caps
from elastio.strategy.tariff import Tariff
from elastio.units import GIB, agbs
from elastio_sim.prices import TARIFF
from elastio_sim.provider import SimProvider

CAP_KINDS = ("max_agbs_per_day", "max_agbs_per_month", "max_cost_per_day", "max_cost_per_month")


@dataclass(frozen=True, order=True)
class Cap:
    """One cap: a field of `Caps`, and the seconds of the smallest cache that it leaves room for."""

    kind: str
    seconds: float

    def caps(self, mb_s: float, tariff: Tariff = TARIFF, *, is_shared: bool = False) -> Caps:
        """The cap on caches of 1 GiB and so many MB/s."""
        most = self.seconds * per_s(self.kind, VolumeSpec(GIB, mb_s), tariff)
        return Caps(max_size_bytes=GIB, shared=is_shared, **{self.kind: most})  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"cap={self.kind}:{self.seconds:g}"

    @classmethod
    def parse(cls, word: str) -> Cap:
        """The inverse of `str`. Raises ValueError."""
        kind, _, seconds = word.removeprefix("cap=").partition(":")
        if kind not in CAP_KINDS:
            raise ValueError(f"{kind!r} is no cap: one of {', '.join(CAP_KINDS)}")
        return cls(kind, float(seconds))


def per_s(kind: str, spec: VolumeSpec, tariff: Tariff) -> float:
    """What a second of this volume counts under this cap."""
    return tariff.per_hour(spec) / 3600 if "cost" in kind else agbs(spec.bandwidth_mb_s, spec.size_bytes, 1.0)


def bill(kind: str, cloud: SimProvider, ahead_s: float = 0.0) -> float:
    """What all volumes of a device count under this cap, if it keeps the one that it has for so many more seconds."""
    now, tariff = cloud.clock.elapsed() + ahead_s, cloud.account.tariff
    if "cost" not in kind:
        return sum(v.agbs(now) for v in cloud.volumes.values())
    return sum(tariff.cost(v.spec, (v.deleted_at or now) - v.created_at) for v in cloud.volumes.values())


def beyond_s(caps: Caps, ahead_s: Mapping[SimProvider, float]) -> float:
    """By how many seconds of the dearest volume these devices pass the caps together; below 0: they do not.

    `ahead_s`: for how many more seconds each keeps the volume that it has.
    """
    sold = [(volume.spec, cloud.account.tariff) for cloud in ahead_s for volume in cloud.volumes.values()]
    limits = {kind: most for kind in CAP_KINDS if sold and (most := getattr(caps, kind)) is not None}
    passed = {kind: sum(bill(kind, *each) for each in ahead_s.items()) - most for kind, most in limits.items()}
    return max((passed[kind] / max(per_s(kind, *each) for each in sold) for kind in passed), default=float("-inf"))


def is_worth(mb_s: float, stop_gain: float, bursts: Sequence[BurstLesson]) -> bool:
    """From there a doubling saves the gain at least, of what waited for bandwidth, or would with no more than that.

    B* of these bursts by its definition.
    """
    seconds = sum(each.seconds for each in bursts)
    at_cap_s, below_s = sum(each.waited_s for each in bursts), sum(each.latency_s for each in bursts)
    at_cap_mb, below_mb = sum(each.waited_mb for each in bursts), sum(each.latency_mb for each in bursts)
    both = mb_s * below_s <= below_mb * (1 + 1e-6)
    rest_s, moved_mb = seconds - at_cap_s - both * below_s, at_cap_mb + both * below_mb
    return moved_mb / mb_s / 2 >= stop_gain * (rest_s + moved_mb / mb_s) * (1 - 1e-6)
