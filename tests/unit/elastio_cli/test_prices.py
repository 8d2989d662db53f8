"""`elastio prices`: the list of the configured provider, or the one of AWS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastio.control.exit_codes import Exit

from .conftest import Golden, Shell
from .machine import LEAST

OPENSTACK = """
[provider.openstack]
currency = "CHF"
price_source = "contract of 2026"
minimum_s = 60
[provider.openstack.types.slow]
bandwidth_mb_s = 60
price_per_gib_hour = 0.0001
[provider.openstack.types.hourly]
bandwidth_mb_s = 200
price_per_mb_s_hour = 0.0002
step_s = 3600
[provider.openstack.types.new]
bandwidth_mb_s = 900
"""


@pytest.fixture
def openstack(tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text(LEAST.replace('"toy"', '"openstack"') + OPENSTACK)


def test_without_a_configuration_the_prices_of_aws_are_shown(elastio: Shell, golden: Golden) -> None:
    result = elastio("prices")
    assert result.exit_code == Exit.OK, result.output
    golden("prices_aws.txt", result.stdout)
    assert elastio("prices", "--cloud", "aws").stdout == result.stdout


def test_the_configured_provider_shows_its_volume_types(elastio: Shell, openstack: None, golden: Golden) -> None:
    result = elastio("prices")
    assert result.exit_code == Exit.OK, result.output
    golden("prices_openstack.txt", result.stdout)


def test_json_has_the_prices_of_a_month(elastio: Shell) -> None:
    shown = json.loads(elastio("prices", "--region", "us-east-1", "--json").stdout)
    (tariff,) = shown["tariffs"]
    assert (shown["provider"], tariff["region"], tariff["volume_type"]) == ("aws", "us-east-1", "gp3")
    assert tariff["per_gib_month"] == pytest.approx(0.08)
    assert tariff["per_mb_s_month"] == pytest.approx(0.04 / 1.048576)
    assert tariff["per_iops_month"] == pytest.approx(0.005)
    assert (tariff["included_mb_s"], tariff["included_iops"], tariff["minimum_s"]) == (131.072, 3000, 60.0)
    assert (tariff["currency"], tariff["date"]) == ("USD", "2026-11-20")


def test_a_region_without_a_price_is_one_sentence(elastio: Shell, golden: Golden) -> None:
    result = elastio("prices", "--region", "me-central-1")
    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")
    golden("prices_unknown_region.txt", result.stderr)


def test_an_invalid_configuration_is_not_taken_for_none(elastio: Shell, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text("[device]\n")
    assert elastio("prices").exit_code == Exit.CONFIG


def test_a_provider_without_a_list_says_so(elastio: Shell, toy: None) -> None:
    result = elastio("prices", "--cloud", "toy")
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.FAILED, 1)
