"""ansible-playbook accepts the role, and its modules have the options that are given.

The collection `amazon.aws` is not on PyPI: modules without code stand in for it, and a table has the names of its
options. Nothing is run on a host.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sim_agent import write_program

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "integrations/ansible"
ROLE = FOLDER / "roles/elastio"
# The options used here, from the modules' documentation (amazon.aws 7 to 10).
AMAZON = {
    "iam_role": {
        "name",
        "description",
        "assume_role_policy_document",
        "create_instance_profile",
        "purge_policies",
        "region",
    },
    "iam_policy": {"iam_type", "iam_name", "policy_name", "policy_json", "region", "state"},
    "ec2_vol": {
        "instance",
        "name",
        "device_name",
        "volume_size",
        "volume_type",
        "encrypted",
        "delete_on_termination",
        "region",
    },
}
PLAYBOOK = "- hosts: localhost\n  gather_facts: false\n  roles: [{role: elastio, elastio_aws: true}]\n"


def tasks() -> list[dict[str, Any]]:
    return [task for path in sorted((ROLE / "tasks").glob("*.yml")) for task in yaml.safe_load(path.read_text())]


def syntax_check(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    for name in AMAZON:
        path = folder / "ansible_collections/amazon/aws/plugins/modules" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("DOCUMENTATION = ''\n")
    (folder / "site.yml").write_text(text)
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_ROLES_PATH": str(FOLDER / "roles"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-W", "ignore", "-m", "ansible", "playbook", "--syntax-check", "-i", "localhost,"]
    return subprocess.run(
        [*command, "site.yml"], cwd=folder, env=settings, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.runs_programs
def test_ansible_accepts_the_role(tmp_path: Path) -> None:
    done = syntax_check(tmp_path, PLAYBOOK)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.runs_programs
def test_a_module_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    write_program(tmp_path / "unused", "")
    assert syntax_check(tmp_path, "- hosts: localhost\n  tasks: [{amazon.aws.no_such: {}}]\n").returncode != 0


def test_every_option_of_the_clouds_modules_exists() -> None:
    used = {
        key.removeprefix("amazon.aws."): set(body)
        for task in tasks()
        for key, body in task.items()
        if key.startswith("amazon.")
    }
    assert set(used) == set(AMAZON)
    assert {name: options - AMAZON[name] for name, options in used.items()} == {name: set() for name in AMAZON}


def test_the_clouds_modules_run_on_the_controller() -> None:
    clouds = [task for task in tasks() if any(key.startswith("amazon.") for key in task)]
    assert {task["delegate_to"] for task in clouds} == {"localhost"}


def test_the_policy_is_the_projects_own() -> None:
    files = [path / "iam-policy.json" for path in (ROLE / "files", ROOT / "docs/reference")]
    assert json.loads(files[0].read_text()) == json.loads(files[1].read_text())


def test_every_variable_has_a_default() -> None:
    defaults = set(yaml.safe_load((ROLE / "defaults/main.yml").read_text()))
    text = "".join(path.read_text() for path in (ROLE / "tasks").glob("*.yml"))
    set_here = {task["register"] for task in tasks() if "register" in task}
    words = {word for word in text.replace(".", " ").replace("(", " ").split() if word.startswith("elastio_")}
    assert {word.rstrip("}:,)") for word in words} - set_here <= defaults
