"""The limits of gp3 volumes, and the ratios between their size, IOPS and throughput. Pure.

Limits as in the API reference of CreateVolume since September 2025: 1 GiB to 64 TiB, 3,000 to 80,000 IOPS,
125 to 2,000 MiB/s; at most 500 IOPS per GiB above the free 3,000 and 0.25 MiB/s per IOPS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from elastio.core.model import VolumeSpec
from elastio.errors import RefusedError
from elastio_aws.settings import Scale

MIN_GIB, MAX_GIB = 1, 65536
FREE_IOPS, MAX_IOPS = 3000, 80000
FREE_MIB_S, MAX_MIB_S = 125, 2000
IOPS_PER_GIB = 500
IOPS_PER_MIB_S = 4
_EPSILON = 1e-9  # the last bit of a float must not round a throughput up a second time


@dataclass(frozen=True, slots=True)
class Parameters:
    """Size, IOPS and throughput as CreateVolume takes them."""

    size_gib: int
    iops: int
    throughput_mib_s: int

    def spec(self, scale: Scale) -> VolumeSpec:
        """The same in bytes and MB/s."""
        return VolumeSpec(self.size_gib * scale.gib_bytes, scale.mb_s(self.throughput_mib_s), self.iops)


def parameters_for(spec: VolumeSpec, scale: Scale, iops: int | None = None) -> Parameters:
    """The smallest gp3 volume that provides `spec`. The result as a spec again gives the same parameters.

    Size, throughput and IOPS are only rounded up; the size also to what the IOPS need. `iops` is the operator's
    setting, for a spec without IOPS. Raises RefusedError beyond a limit.
    """
    if not (spec.size_bytes > 0 and 0 < spec.bandwidth_mb_s < math.inf):
        raise RefusedError("A volume needs a size and a bandwidth above 0.", code="spec.not-positive")
    throughput = max(FREE_MIB_S, math.ceil(spec.bandwidth_mb_s * 1e6 / scale.mib_s_bytes - _EPSILON))
    if throughput > MAX_MIB_S:
        raise RefusedError(
            f"{spec.bandwidth_mb_s:.0f} MB/s is more than a gp3 volume provides; "
            f"the limit is {scale.mb_s(MAX_MIB_S):.0f} MB/s.",
            code="gp3.throughput",
        )
    volume_iops = _iops(throughput, spec.iops if spec.iops is not None else iops)
    size = max(MIN_GIB, _ceil_div(spec.size_bytes, scale.gib_bytes))
    if volume_iops > FREE_IOPS:
        size = max(size, _ceil_div(volume_iops, IOPS_PER_GIB))
    if size > MAX_GIB:
        raise RefusedError(
            f"{size} GiB is more than a gp3 volume can have; the limit is {MAX_GIB} GiB.", code="gp3.size"
        )
    return Parameters(size, volume_iops, throughput)


def _iops(throughput_mib_s: int, wanted: int | None) -> int:
    needed = max(FREE_IOPS, IOPS_PER_MIB_S * throughput_mib_s)
    if wanted is None:
        return needed
    if wanted > MAX_IOPS:
        raise RefusedError(
            f"{wanted} IOPS are more than a gp3 volume provides; the limit is {MAX_IOPS}.", code="gp3.iops"
        )
    if wanted < needed:
        raise RefusedError(
            f"{wanted} IOPS are too few for {throughput_mib_s} MiB/s; gp3 needs at least {needed}.",
            code="gp3.iops-for-throughput",
        )
    return wanted


def _ceil_div(amount: int, step: int) -> int:
    return -(-amount // step)
