from __future__ import annotations

import pytest

from elastio.errors import ConfigError
from elastio_aws.settings import METADATA_ENV, parse
from tests.fixtures.errors import refused


def test_metadata_url_is_taken_from_settings_before_environment() -> None:
    assert parse({}, {}).metadata_url == "http://169.254.169.254"
    environ = {METADATA_ENV: "http://127.0.0.1:1/env/"}
    assert parse({}, environ).metadata_url == "http://127.0.0.1:1/env"
    assert parse({"metadata_url": "http://127.0.0.1:1/set"}, environ).metadata_url == "http://127.0.0.1:1/set"


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"volume_typ": "gp3"}, "volume_typ"),
        ({"volume_type": "io2"}, "volume_type"),
        ({"iops": "3000"}, "iops"),
        ({"iops": True}, "iops"),
        ({"iops": 0}, "iops"),
        ({"encrypted": 1}, "encrypted"),
        ({"read_timeout_s": 0}, "read_timeout_s"),
        ({"connect_timeout_s": float("inf")}, "connect_timeout_s"),
        ({"read_timeout_s": "10"}, "read_timeout_s"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"endpoint_url": "localhost:5000"}, "endpoint_url"),
        ({"metadata_url": "file:///etc"}, "metadata_url"),
        ({"cache_dir": "cache"}, "cache_dir"),
        ({"kms_key_id": "k"}, "kms_key_id"),
        ({"extra_tags": {"elastio:owner": "me"}}, "extra_tags.elastio:owner"),
        ({"extra_tags": {"aws:x": "me"}}, "extra_tags.aws:x"),
        ({"extra_tags": {"a": 1}}, "extra_tags.a"),
        ({"extra_tags": {"a": "x" * 257}}, "extra_tags.a"),
        ({"extra_tags": {f"k{n}": "" for n in range(41)}}, "extra_tags"),
        ({"extra_tags": []}, "extra_tags"),
        ({"region": "us-east-1a"}, "region"),
        ({"region": "US-East-1"}, "region"),
        ({"region": "us-east-1 "}, "region"),
        ({"region": "use1"}, "region"),
        ({"instance_id": "i-1\n"}, "instance_id"),
        ({"region": "eu-west-1", "availability_zone": "us-east-1b"}, "availability_zone"),
        ({"region": "eu-west-1", "availability_zone": "eu-west-1"}, "availability_zone"),
        ({"region": "us-east-1", "availability_zone": "us-east-1A"}, "availability_zone"),
        ({"region": "us-east-1", "availability_zone": "us-east-12a"}, "availability_zone"),
        ({"region": "us-east-1", "availability_zone": "use1-az1"}, "availability_zone"),
        ({"region": "eu-west-1", "encrypted": True, "kms_key_id": "arn:aws:kms:us-east-1:1:alias/a"}, "kms_key_id"),
        ({"region": "eu-west-1", "endpoint_url": "https://ec2.us-east-1.amazonaws.com"}, "endpoint_url"),
        ({"region": "eu-west-1", "endpoint_url": "https://vpce-1.ec2.us-east-1.vpce.amazonaws.com"}, "endpoint_url"),
        ({"scale": {"gib": 1}}, "scale.gib"),
        ({"scale": {"gib_bytes": 0}}, "scale.gib_bytes"),
        ({"scale": {"gib_bytes": 1.5}}, "scale.gib_bytes"),
    ],
)
def test_wrong_setting_names_its_key(table: dict[str, object], key: str) -> None:
    with refused(ConfigError, f"provider.aws.{key}"):
        parse(table, {})


@pytest.mark.parametrize(
    "table",
    [
        {"region": "us-gov-west-1", "availability_zone": "us-gov-west-1b"},
        {"region": "us-isob-east-1", "availability_zone": "us-isob-east-1a"},
        {"region": "us-east-1", "availability_zone": "us-east-1-bos-1a"},
        {"region": "us-east-1", "availability_zone": "us-east-1-wl1-bos-wlz-1"},
        {"region": "eu-west-1", "endpoint_url": "https://vpce-1-a.ec2.eu-west-1.vpce.amazonaws.com"},
        {"region": "eu-west-1", "encrypted": True, "kms_key_id": "arn:aws:kms:eu-west-1:1:alias/a"},
        {"region": "RegionOne", "endpoint_url": "https://cloud.example"},
        {"availability_zone": "eu-west-1a"},
    ],
)
def test_place_that_agrees_is_accepted(table: dict[str, object]) -> None:
    read = parse(table, {})
    assert {key: getattr(read, key) for key in table} == table
