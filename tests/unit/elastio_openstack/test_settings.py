"""`[provider.openstack]`: every wrong value is one sentence that names its key."""

from __future__ import annotations

import pytest

from elastio.errors import ConfigError
from elastio_openstack.settings import Declared, parse


def test_empty_table_is_complete() -> None:
    settings = parse({})
    assert (settings.cloud, settings.types, settings.timeout_s) == ("", {}, 10.0)


def test_types_are_read() -> None:
    types = parse({"types": {"fast": {"bandwidth_mb_s": 64, "iops": 9000, "price_per_gib_hour": 0.001}}}).types
    assert types == {"fast": Declared(bandwidth_mb_s=64, iops=9000, price_per_gib_hour=0.001)}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"colour": "red"}, r"provider\.openstack\.colour is not a setting"),
        ({"timeout_s": True}, "timeout_s must be a number"),
        ({"timeout_s": 0}, "timeout_s must be above 0"),
        ({"minimum_s": -1}, "minimum_s must be 0 or more"),
        ({"metadata_url": "169.254.169.254"}, "must start with http"),
        ({"cloud": "c", "clouds_file": "clouds.yaml"}, "absolute path"),
        ({"clouds_file": "/etc/openstack/clouds.yaml"}, r"needs provider\.openstack\.cloud"),
        ({"extra_metadata": {"elastio:owner": "me"}}, "reserved"),
        ({"extra_metadata": {"team": 7}}, "must be a string"),
        ({"extra_metadata": {"team": "x" * 256}}, "too long"),
        ({"extra_metadata": {str(n): "" for n in range(41)}}, "41 entries"),
        ({"types": {"fast": 64}}, r"types\.fast must be a table"),
        ({"types": {"fast": {"speed": 64}}}, r"types\.fast\.speed is not a setting"),
        ({"types": {"fast": {"bandwidth_mb_s": -1}}}, r"types\.fast\.bandwidth_mb_s must be above 0"),
        ({"types": {"fast": {"bandwidth_mb_s": 1, "bandwidth_mb_s_per_gib": 1}}}, "either"),
    ],
)
def test_wrong_value_is_named(table: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(table)
