"""The shipped policy matches the provider's calls. IAM's evaluation of it is not tested here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from elastio.core.model import VolumeTag
from elastio_aws.slim import OPERATIONS
from elastio_aws.volumes import BACKING_TAG, OWNER_TAG, STATE_TAG

REFERENCE = Path(__file__).parents[3] / "docs/reference"


def statements(effect: str, name: str = "iam-policy") -> list[dict[str, Any]]:
    policy = json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))
    return [statement for statement in policy["Statement"] if statement["Effect"] == effect]


def actions(statement: dict[str, Any]) -> set[str]:
    named = statement["Action"]
    return {named} if isinstance(named, str) else set(named)


def test_every_call_is_allowed_and_nothing_else() -> None:
    shipped = [*statements("Allow"), *statements("Allow", "iam-take-over")]
    assert set().union(*map(actions, shipped)) == {f"ec2:{name}" for name in OPERATIONS}
    assert "ec2:DescribeInstanceStatus" not in set().union(*map(actions, statements("Allow")))


def test_owner_of_a_volume_may_be_changed_only_to_the_caller_and_only_of_one_backing_device() -> None:
    (taking,) = (s for s in statements("Allow", "iam-take-over") if "ec2:CreateTags" in actions(s))
    assert taking["Condition"]["ForAllValues:StringEquals"] == {"aws:TagKeys": [OWNER_TAG, STATE_TAG]}
    assert taking["Condition"]["StringEquals"] == {
        f"aws:ResourceTag/{BACKING_TAG}": "UUID",
        f"aws:RequestTag/{OWNER_TAG}": "${ec2:SourceInstanceARN}",
        f"aws:RequestTag/{STATE_TAG}": VolumeTag.DIRTY.value,
    }


def test_policy_denies_detach_and_delete_of_dirty_volumes() -> None:
    (denied,) = statements("Deny")
    assert actions(denied) == {"ec2:DetachVolume", "ec2:DeleteVolume"}
    assert denied["Condition"] == {"StringEquals": {f"aws:ResourceTag/{STATE_TAG}": VolumeTag.DIRTY.value}}


def test_state_is_the_only_tag_that_may_be_changed() -> None:
    (marking,) = (s for s in statements("Allow") if "aws:TagKeys" in str(s.get("Condition", "")))
    assert marking["Condition"]["ForAllValues:StringEquals"] == {"aws:TagKeys": [STATE_TAG]}
    words = marking["Condition"]["StringEquals"][f"aws:RequestTag/{STATE_TAG}"]
    assert set(words) == {VolumeTag.DIRTY.value, VolumeTag.CLEAN.value}


def test_janitor_may_delete_only_what_is_clean() -> None:
    deleting = [s for s in statements("Allow", "iam-janitor") if "ec2:DeleteVolume" in actions(s)]
    conditions = [s["Condition"]["StringEquals"] for s in deleting]
    assert conditions == [{f"aws:ResourceTag/{STATE_TAG}": VolumeTag.CLEAN.value}]
