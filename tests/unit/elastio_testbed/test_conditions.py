from __future__ import annotations

from elastio_testbed.conditions import processor_name
from elastio_testbed.trial import cloud_s


def test_the_machine_is_named_by_its_first_processor() -> None:
    assert (
        processor_name("processor\t: 0\nmodel name\t: Some  CPU @ 2.0GHz\nmodel name\t: other\n") == "Some CPU @ 2.0GHz"
    )
    assert processor_name("processor : 0\n") == "unknown"


def test_the_clouds_share_of_a_boost_is_creating_and_attaching() -> None:
    history = (
        (10.0, "creating"),
        (11.5, "available"),
        (14.0, "in-use/attaching"),
        (16.0, "in-use/attached"),
        (90.0, "available"),
    )
    assert cloud_s(history) == 3.5


def test_a_volume_that_never_was_attached_has_no_share() -> None:
    assert cloud_s(((10.0, "creating"), (11.5, "available"))) is None
