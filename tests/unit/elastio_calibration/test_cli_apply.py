"""`elastio plan --apply`: where a plan takes effect, and where it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.config.schema import load
from elastio.control.exit_codes import Exit
from elastio.units import GB, GIB

from .test_live import Machine
from .values import APP, Shell

UUID = "01234567-89ab-cdef-0123-456789abcdef"
CONFIG = f"""[device]
backing_uuid = "{UUID}"
bandwidth_mb_s = 33
[cache]
bandwidth_mb_s = 128
drain_bandwidth_mb_s = 0
[provider]
name = "sim"
"""
PLAN = (*APP[:-2], "--checkpoint-gb", "6")


def test_applies_the_size_as_the_first_one(elastio: Shell, made: Path, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG)
    agent = Machine(tmp_path / "agent.sock")
    try:
        result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--apply")
    finally:
        agent.close()
    assert result.exit_code == 0, result.output
    assert agent.daemon.simulation.state.learned_size_bytes == 8 * GB
    config = load(tmp_path / "elastio.toml")
    assert config.policy().initial_size_bytes == pytest.approx(8 * GB, abs=512)


def test_says_that_nothing_changes_when_no_agent_is_told(elastio: Shell, made: Path, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG)
    result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--apply")
    assert result.exit_code == Exit.UNREACHABLE
    assert result.stderr.splitlines()[-1].startswith(
        "elastio: the agent was not told, and what it has learned counts for more than 80-plan.toml: nothing changes"
    )
    assert load(tmp_path / "elastio.toml").cache.initial_size_gib == 8 * GB / GIB


@pytest.mark.parametrize(("name", "size_gib", "fits"), [("90-site", 20, False), ("70-site", 20, True)])
def test_does_not_apply_what_a_later_drop_in_overrules(
    name: str, size_gib: float, fits: bool, elastio: Shell, made: Path, tmp_path: Path
) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG)
    site = tmp_path / "elastio.toml.d" / f"{name}.toml"
    site.parent.mkdir()
    site.write_text(f"[cache]\ninitial_size_gib = {size_gib}\n")
    result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--apply")
    assert (site.parent / "80-plan.toml").exists() == fits
    assert (f"{site} sets cache.initial_size_gib to 20 and wins over 80-plan.toml" in result.stderr) != fits


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[cache]", "[cache]\nmax_size_gib = 5\ninitial_size_gib = 4", "is outside 1 to 5 GiB"),
        ("= 128", "= 100", "cache.bandwidth_mb_s is 100 and was 128 when it was calibrated"),
        ("= 33", "= 250", "device.bandwidth_mb_s is 250 and was 33 when it was calibrated"),
        ("mb_s = 0\n", "mb_s = 33\n", "cache.drain_bandwidth_mb_s is 33 and was 0 when it was calibrated"),
        ("[cache]", "[policy]\ninactivity_delay_s = 4\n[cache]", "policy.inactivity_delay_s is 4 and was 30"),
        ("[cache]", "[policy]\nutilization_threshold = 0.6\n[cache]", "policy.utilization_threshold is 0.6"),
        ("[cache]", "[agent]\nsample_interval_s = 2\n[cache]", "agent.sample_interval_s is 2 and was 1"),
    ],
)
def test_does_not_apply_what_the_configuration_forbids(
    old: str, new: str, sentence: str, elastio: Shell, made: Path, tmp_path: Path
) -> None:
    (tmp_path / "elastio.toml").write_text(CONFIG.replace(old, new))
    result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--apply")
    assert result.exit_code == Exit.FAILED
    assert sentence in result.stderr
    assert not (tmp_path / "elastio.toml.d").exists()
