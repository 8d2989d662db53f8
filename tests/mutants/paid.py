"""Rules that keep a volume from being paid for unseen."""

from __future__ import annotations

from .beyond import OTHER_CLOUD, by_test
from .mutant import Patch

SECOND_VOLUME = "tests/scenario/test_second_volume.py"

PAID = (
    by_test(
        "a refused purchase asks for no list",
        "only a list proves that nothing was bought",
        Patch(
            "elastio/core/machine.py",
            "replace(_unlisted(state, obs), cycle=None, failures",
            "replace(state, cycle=None, failures",
        ),
        SECOND_VOLUME,
        "the simulator's cloud carries out no purchase that it refuses",
    ),
    by_test(
        "a volume without its label is dropped",
        "what is paid for and cannot be released is left to an operator",
        Patch("elastio/core/detection.py", ", VolumeState.UNLABELED: UNLABELED}", "}"),
        SECOND_VOLUME,
        "no schedule takes labels away",
    ),
    by_test(
        "the SDK repeats a purchase",
        "a refusal of a repeat hides no purchase",
        Patch("providers/elastio_aws/client.py", 'frozenset({"create_volume"})', "frozenset[str]()"),
        "tests/contract/test_aws_on_ec2.py::test_a_purchase_is_not_repeated_by_the_sdk_so_no_refusal_hides_it",
        OTHER_CLOUD,
    ),
    by_test(
        "a purchase without an answer is repeated",
        "a purchase that may still be carried out is not repeated",
        Patch("providers/elastio_openstack/provider.py", "self._purchase.require_over(token)", "pass"),
        "tests/unit/elastio_openstack/test_purchases.py",
        OTHER_CLOUD,
    ),
)
