"""The policies, printed and in the reference, match the provider's calls. IAM's evaluation is not tested here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elastio.control.exit_codes import Exit
from elastio.core.model import VolumeTag
from elastio_aws.cli import aws
from elastio_aws.operations import AGENT, JANITOR, OPERATIONS, TAKE_OVER
from elastio_aws.volumes import BACKING_TAG, OWNER_TAG, STATE_TAG

REFERENCE = Path(__file__).parents[3] / "docs/reference"
# A place holder in the reference.
BACKING = "00000000-0000-0000-0000-000000000000"
DEAD = "arn:aws:ec2:eu-central-1:000000000000:instance/i-00000000000000000"
TAKING = ("--take-over", BACKING, "--from", DEAD)
Golden = Callable[[str, str], None]


def printed(*options: str) -> str:
    result = CliRunner().invoke(aws, ["policy", *options], catch_exceptions=False)
    assert result.exit_code == Exit.OK, result.output
    return result.stdout


def statements(effect: str, *options: str) -> list[dict[str, Any]]:
    policy = json.loads(printed(*options))
    return [statement for statement in policy["Statement"] if statement["Effect"] == effect]


def actions(*found: dict[str, Any]) -> set[str]:
    return set().union(*(statement["Action"] for statement in found))


@pytest.mark.parametrize(
    ("name", "options"), [("iam-policy", ()), ("iam-take-over", TAKING), ("iam-janitor", ("--janitor",))]
)
def test_the_reference_has_what_the_command_prints(
    name: str, options: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    page = REFERENCE / f"{name}.json"
    if request.config.getoption("--write-golden"):
        page.write_text(printed(*options), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == printed(*options)


def test_every_call_is_allowed_and_nothing_else() -> None:
    """`test_slim` compares the operations with the calls in the package."""
    assert actions(*statements("Allow")) == {f"ec2:{name}" for name in AGENT}
    assert actions(*statements("Allow", *TAKING)) == {f"ec2:{name}" for name in TAKE_OVER}
    assert actions(*statements("Allow", "--janitor")) == {f"ec2:{name}" for name in JANITOR}
    assert set(AGENT) | set(TAKE_OVER) | set(JANITOR) == set(OPERATIONS)


def test_owner_of_a_volume_may_be_changed_only_from_the_dead_instance_to_the_caller_and_of_one_device() -> None:
    """Machines of one image have the same backing UUID. The caller's own volume may be tagged so once more."""
    (taking,) = (s for s in statements("Allow", *TAKING) if "ec2:CreateTags" in actions(s))
    assert taking["Resource"] == "arn:aws:ec2:eu-central-1:000000000000:volume/*"
    assert taking["Condition"]["ForAllValues:StringEquals"] == {"aws:TagKeys": [OWNER_TAG, STATE_TAG]}
    assert taking["Condition"]["StringEquals"] == {
        f"aws:ResourceTag/{BACKING_TAG}": BACKING,
        f"aws:ResourceTag/{OWNER_TAG}": [DEAD, "${ec2:SourceInstanceARN}"],
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
    deleting = [s for s in statements("Allow", "--janitor") if "ec2:DeleteVolume" in actions(s)]
    conditions = [s["Condition"]["StringEquals"] for s in deleting]
    assert conditions == [{f"aws:ResourceTag/{STATE_TAG}": VolumeTag.CLEAN.value}]


def test_caps_are_those_that_were_asked_for() -> None:
    (buying,) = (s for s in statements("Allow", "--max-gib", "50", "--max-mib-s", "500") if s["Sid"].startswith("Buy"))
    assert buying["Condition"]["NumericLessThanEquals"] == {
        "ec2:VolumeSize": "50",
        "ec2:VolumeIops": "8000",
        "ec2:VolumeThroughput": "500",
    }


@pytest.mark.parametrize("options", [(), TAKING, ("--janitor",)])
def test_another_partition_is_in_every_arn(options: tuple[str, ...]) -> None:
    text = printed("--partition", "aws-cn", *(o.replace("arn:aws:", "arn:aws-cn:") for o in options))
    assert text.replace("arn:aws-cn:", "arn:aws:") == printed(*options)
    assert "arn:aws:" not in text


def test_the_next_steps_are_beside_the_document(golden: Golden) -> None:
    result = CliRunner().invoke(aws, ["policy"])
    golden("aws_policy_next_steps.txt", result.stderr)
    assert "aws iam" not in result.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--max-mib-s", "100"),
        ("--janitor", "--max-gib", "5"),
        (*TAKING, "--max-gib", "5"),
        (*TAKING, "--janitor"),
        TAKING[:2],  # any machine's cache
        TAKING[2:],
        (*TAKING, "--partition", "aws-cn"),
        *(
            (*TAKING[:3], arn)
            for arn in (
                "",
                "*",
                "i-00000000000000000",
                DEAD.replace("i-0", "*"),
                DEAD.replace("aws", "azure"),
                f"{DEAD},",
            )
        ),
        ("--partition", "azure"),
    ],
)
def test_wrong_usage_prints_no_policy(options: tuple[str, ...]) -> None:
    result = CliRunner().invoke(aws, ["policy", *options])
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
