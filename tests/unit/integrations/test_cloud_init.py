"""cloud-init's own schema accepts the user data, and its script does what the how-to pages say, in their order."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.sim_agent import SimAgent, programs

FOLDER = Path(__file__).parents[3] / "integrations"
TEXT = (FOLDER / "cloud-init/user-data.yaml").read_text()
DATA: dict[str, Any] = yaml.safe_load(TEXT)
SCRIPT = "/usr/local/sbin/elastio-first-boot"
SCHEMA = Path(sys.executable).parents[1] / "share/cloud-config.schema.json"
CHANGES = ("udevadm", "mkfs.ext4", "mount", "systemctl")
DISK = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"


def contents(path: str) -> str:
    (found,) = (file["content"] for file in DATA["write_files"] if file["path"] == path)
    return str(found)


def test_cloud_init_accepts_it() -> None:
    assert SCHEMA.exists(), "cloud-init's schema is missing: run `make setup`"
    assert TEXT.startswith("#cloud-config\n")
    jsonschema.validate(DATA, json.loads(SCHEMA.read_text()))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**DATA, "packages": "elastio"}, json.loads(SCHEMA.read_text()))


def test_ansible_runs_the_same_script() -> None:
    assert contents(SCRIPT) == (FOLDER / "ansible/roles/elastio/files/elastio-first-boot").read_text()


def test_the_script_that_is_run_is_the_one_that_is_written() -> None:
    assert DATA["runcmd"][-1] == [SCRIPT]
    (written,) = (file for file in DATA["write_files"] if file["path"] == SCRIPT)
    assert written["permissions"] == "0755"


@pytest.fixture
def machine(tmp_path: Path, runs_programs: None) -> SimAgent:
    """A machine on which the programs that change disks are stand-ins."""
    machine = programs(tmp_path)
    for name in CHANGES:
        machine.stand_in(name)
    machine.stand_in("blkid", "echo 0a1b")
    (machine.folder / "first-boot").write_text(contents(SCRIPT))
    return machine


def boot(machine: SimAgent, volume: str) -> int:
    settings = machine.folder / "settings"
    settings.write_text(
        contents("/etc/default/elastio-first-boot")
        .replace("VOLUME=vol-0123456789abcdef0", f"VOLUME={volume}")
        .replace("MOUNT_POINT=/data", f"MOUNT_POINT={machine.folder}/data")
    )
    variables = {"DEFAULTS": settings, "CONFIG": machine.folder / "made.toml", "FSTAB": machine.folder / "fstab"}
    return machine.run("sh", "first-boot", **{name: str(path) for name, path in variables.items()}).returncode


@pytest.mark.parametrize(("volume", "disk"), [("vol-0123456789abcdef0", DISK), ("/dev/vdb", "/dev/vdb")])
def test_a_first_boot_makes_the_device_and_starts_the_agent(machine: SimAgent, volume: str, disk: str) -> None:
    machine.stand_in("elastio")
    assert boot(machine, volume) == 0
    assert machine.calls() == [
        f"udevadm wait --timeout=300 {disk}",
        f"elastio device create --yes {disk}",
        "udevadm wait --timeout=30 /dev/bcache0",
        "mkfs.ext4 -q /dev/bcache0",
        "blkid -s UUID -o value /dev/bcache0",
        f"mount {machine.folder}/data",
        "elastio init --bandwidth 131 --cache-bandwidth 500",
        "systemctl start elastiod",
    ]
    assert (machine.folder / "fstab").read_text() == f"/dev/disk/by-uuid/0a1b {machine.folder}/data ext4 nofail 0 2\n"


def test_a_volume_that_is_refused_is_not_formatted(machine: SimAgent) -> None:
    machine.stand_in("elastio", "exit 1")
    assert boot(machine, "/dev/vdb") != 0
    assert [call.split()[0] for call in machine.calls()] == ["udevadm", "elastio"]


def test_a_second_boot_changes_nothing(machine: SimAgent) -> None:
    (machine.folder / "made.toml").touch()
    assert boot(machine, "/dev/vdb") == 0
    assert machine.calls() == []


def test_the_options_of_init_exist(machine: SimAgent) -> None:
    line = next(line for line in contents(SCRIPT).splitlines() if "elastio init" in line)
    options = [word for word in line.split() if word.startswith("--")]
    printed = machine.run("elastio", "init", "--help").stdout
    assert [option for option in options if option not in printed] == []
