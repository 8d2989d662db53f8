"""Write a planned cache size into a drop-in of the agent's configuration."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

from elastio.codec import text_of
from elastio.config.files import drop_ins
from elastio.config.schema import Config
from elastio.config.text import write
from elastio.units import GB, GIB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Conditions

NAME = "80-plan.toml"
# Two settings are the same when they differ by less: people round both.
SAME = 0.01


def write_drop_in(config_path: Path, config: Config, size_bytes: int, conditions: Conditions) -> Path:
    """Set `cache.initial_size_gib` in `<config>.d/80-plan.toml`, replacing an earlier plan. Returns its path.

    `conditions`: those of the calibration. Raises CalibrationError and writes nothing where the configuration does not
    allow the size, differs from the calibration, or has a later drop-in that sets another size.
    """
    cache = config.cache
    size_gib = size_bytes / GIB
    if not cache.min_size_gib <= size_gib <= cache.max_size_gib:
        raise CalibrationError(
            f"a cache of {size_bytes / GB:.4g} GB ({size_gib:.4g} GiB) is outside {cache.min_size_gib:g} to "
            f"{cache.max_size_gib:g} GiB (cache.*_size_gib): change the configuration first",
            code="cache.max_size_gib",
        )
    _require_calibrated(config, conditions)
    _require_last(config_path, size_gib)
    path = config_path.with_name(f"{config_path.name}.d") / NAME
    write(path, f"# Written by `elastio plan --apply`.\n[cache]\ninitial_size_gib = {size_gib!r}\n", replace=True)
    return path


def _require_calibrated(config: Config, conditions: Conditions) -> None:
    policy = config.policy()
    settings = {
        "device.bandwidth_mb_s": (policy.backing_bandwidth_mb_s, conditions.backing_mb_s),
        "cache.bandwidth_mb_s": (policy.cache_bandwidth_mb_s, conditions.cache_mb_s),
        "cache.drain_bandwidth_mb_s": (policy.drain_bandwidth_mb_s, conditions.drain_mb_s),
        "policy.utilization_threshold": (policy.utilization_threshold, conditions.utilization_threshold),
        "policy.inactivity_delay_s": (policy.inactivity_delay_s, conditions.inactivity_delay_s),
        "agent.sample_interval_s": (config.agent.sample_interval_s, conditions.sample_interval_s),
    }
    differences = [
        f"{key} is {is_:g} and was {was:g} during the calibration"
        for key, (is_, was) in settings.items()
        if not math.isclose(is_, was, rel_tol=SAME)
    ]
    if differences:
        raise CalibrationError(
            f"the plan is for another configuration: {', '.join(differences)}; change it, or calibrate again"
        )


def _require_last(config_path: Path, size_gib: float) -> None:
    """Raises CalibrationError where a drop-in with a later name, which takes precedence, sets another size."""
    for path in drop_ins(config_path):
        set_gib = tomllib.loads(text_of(path.read_bytes())).get("cache", {}).get("initial_size_gib", size_gib)
        if path.name > NAME and set_gib != size_gib:
            raise CalibrationError(
                f"{path} sets cache.initial_size_gib to {set_gib:g} and overrides {NAME}: remove it there first"
            )
