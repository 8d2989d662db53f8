"""cloud-init's own schema accepts the user data, and its script leaves everything on disks to `elastio setup`."""

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
CHANGES = ("udevadm", "mkfs.ext4", "mkfs.xfs", "mount", "systemctl", "blkid", "wipefs", "make-bcache")
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
    (machine.folder / "first-boot").write_text(contents(SCRIPT))
    return machine


def boot(machine: SimAgent, volume: str) -> int:
    settings = machine.folder / "settings"
    settings.write_text(
        contents("/etc/default/elastio-first-boot")
        .replace("VOLUME=vol-0123456789abcdef0", f"VOLUME={volume}")
        .replace("MOUNT_POINT=/data", f"MOUNT_POINT={machine.folder}/data")
    )
    return machine.run("sh", "first-boot", DEFAULTS=str(settings)).returncode


@pytest.mark.parametrize(("volume", "disk"), [("vol-0123456789abcdef0", DISK), ("/dev/vdb", "/dev/vdb")])
def test_a_first_boot_leaves_all_to_setup(machine: SimAgent, volume: str, disk: str) -> None:
    """What `setup` does with these words on a machine with another bcache device: cli/test_first_boot.py."""
    machine.stand_in("elastio")
    assert boot(machine, volume) == 0
    assert machine.calls() == [
        f"udevadm wait --timeout=300 {disk}",
        f"elastio setup {disk} {machine.folder}/data --yes --bandwidth 131 --cache-bandwidth 500",
    ]


def test_a_refusal_is_the_result_of_the_script(machine: SimAgent) -> None:
    machine.stand_in("elastio", "exit 3")
    assert boot(machine, "/dev/vdb") == 3
    assert [call.split()[0] for call in machine.calls()] == ["udevadm", "elastio"]


def test_a_volume_that_does_not_come_is_not_set_up(machine: SimAgent) -> None:
    machine.stand_in("udevadm", "exit 1")
    machine.stand_in("elastio")
    assert boot(machine, "/dev/vdb") != 0
    assert [call.split()[0] for call in machine.calls()] == ["udevadm"]


def test_the_options_of_setup_exist(machine: SimAgent) -> None:
    line = next(line for line in contents(SCRIPT).splitlines() if "elastio setup" in line and "exec" in line)
    options = [word for word in line.split() if word.startswith("--")]
    printed = machine.run("elastio", "setup", "--help").stdout
    assert [option for option in options if option not in printed] == []
