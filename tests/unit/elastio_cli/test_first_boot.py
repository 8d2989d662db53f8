"""The first-boot script of the integrations, on a machine that has a bcache device of somebody else."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from elastio.config.schema import load
from elastio.control.exit_codes import Exit

from .blank_machine import SIZE_SECTORS, BlankMachine
from .conftest import Shell
from .machine import backing, lay
from .test_setup import machine, simulated

__all__ = ["machine", "simulated"]
SCRIPT = Path(__file__).parents[3] / "integrations/ansible/roles/elastio/files/elastio-first-boot"
FOREIGN = "99999999-89ab-cdef-0123-456789abcdef"
CONTENT = b"the data of another program, without a signature"


def words_of(script: Path, machine: BlankMachine) -> list[str]:
    """What the script runs `elastio` with; every other program but `udevadm` fails it."""
    folder = machine.folder / "bin"
    folder.mkdir(exist_ok=True)
    for name, body in (("udevadm", "exit 0"), ("elastio", f'printf "%s\\n" "$@" >{folder}/words')):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    settings = machine.folder / "settings"
    place, device = shlex.quote(str(machine.place)), shlex.quote(str(machine.device))
    settings.write_text(f"VOLUME={device}\nBANDWIDTH=33\nCACHE_BANDWIDTH=132\nMOUNT_POINT={place}\n")
    done = subprocess.run(
        ["/bin/sh", str(script)],
        env={"PATH": str(folder), "DEFAULTS": str(settings)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "words").read_text().splitlines()


@pytest.fixture
def foreign(machine: BlankMachine, tmp_path: Path) -> Path:
    """bcache0 of another program: it runs, is mounted nowhere, and has data without a signature."""
    backing(machine.root, "vdy", FOREIGN, "bcache0")
    lay(machine.root, sys__block__bcache0__dev="250:83")
    node = machine.root / "dev/bcache0"
    lay(machine.root, sys__class__block__bcache0__size=str(SIZE_SECTORS), dev__bcache0="")
    node.write_bytes(CONTENT)
    os.truncate(node, SIZE_SECTORS * 512)
    machine.adaptive = "bcache1"
    # The provider is that of the cloud; here it is named, as a drop-in does.
    lay(tmp_path, **{"elastio.toml.d__cloud.toml": '[provider]\nname = "sim"\n'})
    return node


@pytest.mark.runs_programs
def test_only_the_named_volume_is_formatted(simulated: Shell, machine: BlankMachine, foreign: Path) -> None:
    words = words_of(SCRIPT, machine)
    result = simulated(*words)
    assert result.exit_code == Exit.OK, result.output
    assert machine.made_on == [str(machine.root / "dev/bcache1")]
    with foreign.open("rb") as node:
        assert node.read(len(CONTENT)) == CONTENT
    assert "/dev/bcache0" not in machine.fstab
    assert load(machine.folder / "elastio.toml").device.backing_uuid != FOREIGN
    machine.ran.clear()
    assert (simulated(*words).exit_code, machine.changes) == (Exit.OK, []), "a second boot changes nothing"


@pytest.mark.runs_programs
@pytest.mark.parametrize("program", ["mkfs.ext4", "mount", "systemctl enable"])
def test_a_second_boot_goes_on_after_a_failure(
    program: str, simulated: Shell, machine: BlankMachine, foreign: Path
) -> None:
    words = words_of(SCRIPT, machine)
    machine.failing = {program}
    assert simulated(*words).exit_code == Exit.FAILED
    machine.failing = set()
    assert simulated(*words).exit_code == Exit.OK
    assert machine.made_on == [str(machine.root / "dev/bcache1")]


@pytest.mark.runs_programs
@pytest.mark.usefixtures("foreign")
def test_a_machine_that_is_set_up_for_another_volume_is_left_alone(
    simulated: Shell, machine: BlankMachine, tmp_path: Path
) -> None:
    (tmp_path / "elastio.toml").write_text(
        f'[device]\nbacking_uuid = "{FOREIGN}"\nbandwidth_mb_s = 60\n[cache]\nbandwidth_mb_s = 128\n'
    )
    assert simulated(*words_of(SCRIPT, machine)).exit_code == Exit.CONFIG
    assert machine.changes == []
