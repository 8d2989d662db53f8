"""Every script, also those inside other files, is a shell script without a finding of shellcheck."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[3] / "integrations"


def embedded() -> dict[str, str]:
    """The scripts that are inside YAML files. Parameters of SSM are words there."""
    (step,) = yaml.safe_load((FOLDER / "aws-dlm/ssm-document.yaml").read_text())["mainSteps"]
    files = yaml.safe_load((FOLDER / "cloud-init/user-data.yaml").read_text())["write_files"]
    scripts = {file["path"]: file["content"] for file in files if file["content"].startswith("#!")}
    return {"ssm": re.sub(r"\{\{ (\w+) \}\}", r"\1", "\n".join(step["inputs"]["runCommand"])), **scripts}


SCRIPTS = {
    **{
        str(path.relative_to(FOLDER)): path.read_text()
        for path in sorted(FOLDER.rglob("*"))
        if path.is_file() and path.read_bytes().startswith(b"#!")
    },
    **embedded(),
}


def test_scripts_are_found() -> None:
    assert {"slurm/prolog.sh", "slurm/epilog.sh", "ssm", "/usr/local/sbin/elastio-first-boot"} <= set(SCRIPTS)


@pytest.mark.runs_programs
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name: str) -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    assert program is not None, "shellcheck is missing: run `make setup`"
    # SC2043, SC2050, SC2194: a parameter of SSM is a constant word here. SC1090: a file that only the machine has.
    command = [program, "--shell=sh", "--exclude=SC2194,SC2043,SC1090,SC2050", "-"]
    done = subprocess.run(command, input=SCRIPTS[name], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""
    assert subprocess.run(["sh", "-n"], input=SCRIPTS[name], text=True, check=False).returncode == 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_formats_or_mounts_anything_itself(name: str) -> None:
    """A kernel name may be another program's device: `elastio setup` finds the device by its volume."""
    code = "\n".join(line for line in SCRIPTS[name].splitlines() if not line.lstrip().startswith("#"))
    assert re.findall(r"\b(?:mkfs\S*|mke2fs|wipefs|make-bcache|bcache\d+|/etc/fstab)\b", code) == []
