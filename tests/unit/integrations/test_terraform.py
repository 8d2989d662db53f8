"""The Terraform module is HCL, refers only to what it declares, and its policy is the project's own.

Terraform itself does not run here: types of resources and arguments are those of the documentation of the AWS provider.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hcl2

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "integrations/terraform"
DEFAULT_CAPS = re.compile(r"^\$\{var\.(most_cache_\w+)\}$")
REFERENCE = re.compile(r"\b(var\.\w+|data\.aws_\w+\.\w+|aws_\w+\.\w+)")


def plain(value: Any) -> Any:
    """Without the quotes of strings and labels, and without the parser's own keys."""
    if isinstance(value, dict):
        return {plain(key): plain(found) for key, found in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value[1:-1] if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"' else value


def module() -> dict[str, list[dict[str, Any]]]:
    """The blocks of all files, by their kind."""
    blocks: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(FOLDER.glob("*.tf")):
        with path.open() as file:
            for kind, found in plain(hcl2.load(file)).items():
                blocks.setdefault(kind, []).extend(found)
    return blocks


MODULE = module()


def named(kind: str) -> dict[str, dict[str, Any]]:
    """The blocks of this kind, by type and name: `aws_ebs_volume.backing`."""
    blocks = MODULE[kind]
    return {f"{of}.{name}": body for block in blocks for of, names in block.items() for name, body in names.items()}


VARIABLES = {name: body for block in MODULE["variable"] for name, body in block.items()}
DOCUMENTS = named("data")
RESOURCES = named("resource")


def value_of(text: Any) -> str:
    """A value of the policy as JSON has it, with the defaults of variables."""
    cap = DEFAULT_CAPS.match(str(text))
    if cap:
        return str(VARIABLES[cap[1]]["default"])
    return str(text).replace("${data.aws_partition.current.partition}", "aws").replace("&{", "${")


def statement(block: dict[str, Any]) -> dict[str, Any]:
    """A statement of a policy document as a statement of the JSON policy, every list a list."""
    condition: dict[str, dict[str, list[str]]] = {}
    for asked in block.get("condition", []):
        condition.setdefault(asked["test"], {})[asked["variable"]] = [value_of(v) for v in asked["values"]]
    return {
        "Sid": block["sid"],
        "Effect": block.get("effect", "Allow"),
        "Action": block["actions"],
        "Resource": [value_of(resource) for resource in block["resources"]],
        "Condition": condition,
    }


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def shipped() -> list[dict[str, Any]]:
    policy = json.loads((ROOT / "docs/reference/iam-policy.json").read_text())
    return [
        {
            "Sid": given["Sid"],
            "Effect": given["Effect"],
            "Action": listed(given["Action"]),
            "Resource": listed(given["Resource"]),
            "Condition": {
                test: {key: listed(value) for key, value in asked.items()}
                for test, asked in given.get("Condition", {}).items()
            },
        }
        for given in policy["Statement"]
    ]


def test_the_policy_is_the_projects_own_with_the_caps_as_variables() -> None:
    assert [statement(block) for block in DOCUMENTS["aws_iam_policy_document.elastio"]["statement"]] == shipped()


def test_no_other_action_is_allowed() -> None:
    actions = {a for body in DOCUMENTS.values() for block in body.get("statement", []) for a in block["actions"]}
    assert actions - {a for given in shipped() for a in given["Action"]} == {"sts:AssumeRole"}


def test_the_role_is_one_of_instances() -> None:
    (assume,) = DOCUMENTS["aws_iam_policy_document.assume"]["statement"]
    assert assume["principals"] == [{"type": "Service", "identifiers": ["ec2.amazonaws.com"]}]
    assert "aws_iam_policy_document.elastio.json" in RESOURCES["aws_iam_role_policy.elastio"]["policy"]


def test_everything_that_is_referred_to_is_declared_and_every_variable_is_used() -> None:
    text = "\n".join(path.read_text() for path in FOLDER.glob("*.tf"))
    declared = {f"var.{name}" for name in VARIABLES} | {f"data.{name}" for name in DOCUMENTS} | set(RESOURCES)
    assert set(REFERENCE.findall(text)) <= declared
    assert {f"var.{name}" for name in VARIABLES} <= set(REFERENCE.findall(text))
    assert all({"description", "type"} <= set(body) for body in VARIABLES.values())


def test_the_volume_outlives_a_mistake() -> None:
    volume, attachment = RESOURCES["aws_ebs_volume.backing"], RESOURCES["aws_volume_attachment.backing"]
    assert volume["lifecycle"] == [{"prevent_destroy": True}]
    assert "force_detach" not in attachment
    assert attachment["stop_instance_before_detaching"] is True
