"""`elastio plan --apply`: the drop-in, the agent's size, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.config.schema import load
from elastio.control.exit_codes import Exit
from elastio.units import GB, GIB

from .test_live import Machine
from .values import CONFIG, PLAN, Shell


def test_applies_the_size_as_the_first_one(elastio: Shell, made: Path, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG)
    agent = Machine(tmp_path / "agent.sock")
    try:
        result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--apply")
    finally:
        agent.close()
    assert result.exit_code == 0, result.output
    assert agent.daemon.simulation.state.memory.learned_size_bytes == 8 * GB
    config = load(tmp_path / "elastio.toml")
    assert config.policy().initial_size_bytes == pytest.approx(8 * GB, abs=512)


def test_exits_as_unreachable_when_no_agent_learns_the_size(elastio: Shell, made: Path, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG)
    result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--apply")
    assert result.exit_code == Exit.UNREACHABLE
    assert load(tmp_path / "elastio.toml").cache.initial_size_gib == 8 * GB / GIB


@pytest.mark.parametrize(("name", "size_gib", "fits"), [("90-site", 20, False), ("70-site", 20, True)])
def test_refuses_a_size_that_a_later_drop_in_overrides(
    name: str, size_gib: float, fits: bool, elastio: Shell, made: Path, tmp_path: Path
) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG)
    site = tmp_path / "elastio.toml.d" / f"{name}.toml"
    site.parent.mkdir()
    site.write_text(f"[cache]\ninitial_size_gib = {size_gib}\n", encoding="utf-16")  # as `load` takes it too
    result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--apply")
    assert (site.parent / "80-plan.toml").exists() == fits
    assert (str(site) in result.stderr) != fits


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("[cache]", "[cache]\nmax_size_gib = 5\ninitial_size_gib = 4", "cache.*_size_gib"),
        ("= 128", "= 100", "cache.bandwidth_mb_s"),
        ("= 33", "= 250", "device.bandwidth_mb_s"),
        ("mb_s = 0\n", "mb_s = 33\n", "cache.drain_bandwidth_mb_s"),
        ("[cache]", "[policy]\ninactivity_delay_s = 4\n[cache]", "policy.inactivity_delay_s"),
        ("[cache]", "[policy]\nutilization_threshold = 0.6\n[cache]", "policy.utilization_threshold"),
        ("[cache]", "[agent]\nsample_interval_s = 2\n[cache]", "agent.sample_interval_s"),
    ],
)
def test_refuses_a_plan_for_another_configuration(
    old: str, new: str, key: str, elastio: Shell, made: Path, tmp_path: Path
) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG.replace(old, new))
    result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--apply")
    assert result.exit_code == Exit.FAILED
    assert key in result.stderr
    assert not (tmp_path / "elastio.toml.d").exists()
