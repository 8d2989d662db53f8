"""[profile]: on by default, and patterns that name cgroups."""

from __future__ import annotations

import pytest

from elastio.config.schema import parse
from elastio.errors import ConfigError

from .test_config_share import LEAST


def test_the_account_is_kept_of_slices_and_services_by_default() -> None:
    profile = parse(LEAST).profile
    assert profile.enabled
    assert profile.cgroups == ("*.slice", "*.service", "system.slice/*.service")


def test_it_is_switched_off_and_told_what_to_look_at() -> None:
    profile = parse({**LEAST, "profile": {"enabled": False, "cgroups": ["kubepods.slice/*"]}}).profile
    assert (profile.enabled, profile.cgroups) == (False, ("kubepods.slice/*",))


@pytest.mark.parametrize("value", ["*.slice", [1], [""], ["../x"], ["a//b"], ["/a"], ["a/"], ["x" * 5000], ["a\0"]])
def test_what_is_no_list_of_paths_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({**LEAST, "profile": {"cgroups": value}})
    assert caught.value.code == "profile.cgroups"
