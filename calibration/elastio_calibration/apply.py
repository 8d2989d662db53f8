"""Write a planned size into the agent's configuration, as a drop-in beside the file."""

from __future__ import annotations

from pathlib import Path

from elastio.config import Config
from elastio.setup.config_text import write
from elastio.units import GB, GIB
from elastio_calibration.errors import CalibrationError

NAME = "80-plan.toml"
# The profile's bandwidth and the configured one are the same when they differ by less: both are rounded by people.
SAME_MB_S = 0.01


def write_drop_in(config_path: Path, config: Config, size_bytes: int, cache_mb_s: float) -> Path:
    """`cache.initial_size_gib` in `<config>.d/80-plan.toml`, replacing an earlier plan. Raises CalibrationError, with
    nothing written, where the configuration does not allow it."""
    cache = config.cache
    size_gib = size_bytes / GIB
    if not cache.min_size_gib <= size_gib <= cache.max_size_gib:
        raise CalibrationError(
            f"a cache of {size_bytes / GB:.4g} GB ({size_gib:.4g} GiB) is outside {cache.min_size_gib:g} to "
            f"{cache.max_size_gib:g} GiB (cache.*_size_gib): change the configuration first"
        )
    if abs(cache_mb_s / cache.bandwidth_mb_s - 1) > SAME_MB_S:
        raise CalibrationError(
            f"the plan is for caches of {cache_mb_s:g} MB/s and the configuration buys {cache.bandwidth_mb_s:g} MB/s: "
            "set cache.bandwidth_mb_s first"
        )
    path = config_path.with_name(f"{config_path.name}.d") / NAME
    write(path, f"# Written by `elastio plan --apply`.\n[cache]\ninitial_size_gib = {size_gib!r}\n", replace=True)
    return path
