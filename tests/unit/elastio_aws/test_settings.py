from __future__ import annotations

import pytest

from elastio.errors import ConfigError
from elastio_aws.settings import METADATA_ENV, Scale, parse


def test_defaults_are_those_of_real_ec2() -> None:
    settings = parse({}, environ={})
    assert settings.volume_type == "gp3"
    assert settings.metadata_url == "http://169.254.169.254"
    assert settings.scale == Scale(2**30, 2**20)
    assert (settings.connect_timeout_s, settings.read_timeout_s, settings.max_attempts) == (3, 10, 3)


def test_metadata_url_is_taken_from_settings_before_environment() -> None:
    environ = {METADATA_ENV: "http://127.0.0.1:1/env/"}
    assert parse({}, environ).metadata_url == "http://127.0.0.1:1/env"
    assert parse({"metadata_url": "http://127.0.0.1:1/set"}, environ).metadata_url == "http://127.0.0.1:1/set"


def test_scale_and_tags_are_read() -> None:
    settings = parse({"scale": {"gib_bytes": 2**20, "mib_s_bytes": 2**19}, "extra_tags": {"team": "hpc"}}, {})
    assert settings.scale == Scale(2**20, 2**19)
    assert settings.extra_tags == {"team": "hpc"}


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"volume_typ": "gp3"}, "volume_typ is not a setting"),
        ({"volume_type": "io2"}, 'must be "gp3"'),
        ({"iops": "3000"}, "iops must be a whole number"),
        ({"iops": True}, "iops must be a whole number"),
        ({"iops": 0}, "iops must be above 0"),
        ({"encrypted": 1}, "encrypted must be true or false"),
        ({"read_timeout_s": 0}, "read_timeout_s must be above 0"),
        ({"connect_timeout_s": float("inf")}, "connect_timeout_s must be above 0"),
        ({"read_timeout_s": "10"}, "read_timeout_s must be a number"),
        ({"max_attempts": 0}, "max_attempts must be above 0"),
        ({"endpoint_url": "localhost:5000"}, "must start with http"),
        ({"metadata_url": "file:///etc"}, "must start with http"),
        ({"cache_dir": "cache"}, "must be an absolute path"),
        ({"kms_key_id": "k"}, "needs provider.aws.encrypted"),
        ({"extra_tags": {"elastio:owner": "me"}}, "is reserved"),
        ({"extra_tags": {"aws:x": "me"}}, "is reserved"),
        ({"extra_tags": {"a": 1}}, "must be a string"),
        ({"extra_tags": {"a": "x" * 257}}, "too long"),
        ({"extra_tags": {f"k{n}": "" for n in range(41)}}, "at most 40"),
        ({"extra_tags": []}, "must be a table"),
        ({"scale": {"gib": 1}}, "scale.gib is not a setting"),
        ({"scale": {"gib_bytes": 0}}, "whole number above 0"),
        ({"scale": {"gib_bytes": 1.5}}, "must be a whole number"),
    ],
)
def test_wrong_setting_is_one_sentence_naming_the_key(table: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=r"^provider\.aws\.") as caught:
        parse(table, {})
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
