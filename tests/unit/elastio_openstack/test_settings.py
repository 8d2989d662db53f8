"""`[provider.openstack]`: the error of every wrong value has its key as code."""

from __future__ import annotations

import pytest

from elastio.errors import ConfigError
from elastio_openstack.settings import parse
from tests.fixtures.errors import refused


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"colour": "red"}, "colour"),
        ({"timeout_s": True}, "timeout_s"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"minimum_s": -1}, "minimum_s"),
        ({"metadata_url": "169.254.169.254"}, "metadata_url"),
        ({"cloud": "c", "clouds_file": "clouds.yaml"}, "clouds_file"),
        ({"clouds_file": "/etc/openstack/clouds.yaml"}, "clouds_file"),
        ({"extra_metadata": {"elastio:owner": "me"}}, "extra_metadata.elastio:owner"),
        ({"extra_metadata": {"team": 7}}, "extra_metadata.team"),
        ({"extra_metadata": {"team": "x" * 256}}, "extra_metadata.team"),
        ({"extra_metadata": {str(n): "" for n in range(41)}}, "extra_metadata"),
        ({"types": {"fast": 64}}, "types.fast"),
        ({"types": {"fast": {"speed": 64}}}, "types.fast.speed"),
        ({"types": {"fast": {"bandwidth_mb_s": -1}}}, "types.fast.bandwidth_mb_s"),
        ({"types": {"fast": {"bandwidth_mb_s": 1, "bandwidth_mb_s_per_gib": 1}}}, "types.fast"),
    ],
)
def test_wrong_setting_names_its_key(table: dict[str, object], key: str) -> None:
    with refused(ConfigError, f"provider.openstack.{key}"):
        parse(table)
