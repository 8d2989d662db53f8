"""A package is upgraded while a boost runs, and purged at the end, with apt, as an operator does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastio import __version__
from elastio_testbed.image import checkout_package
from elastio_testbed.image.install import OVERLAY
from elastio_testbed.image.package import as_release
from elastio_testbed.machine import DATA, PROGRAMS
from tests.faults.conftest import Target
from tests.operator.conftest import APT, APT_S, boost_with_records, copy_in, end_load, shell, succeed

pytestmark = pytest.mark.guest

OLDER = "0.0.9"
RELEASE = Path(__file__).parents[1] / "fixtures" / "release_0_1_0"
STATE, EXAMPLE = "/var/lib/elastio", f"{PROGRAMS}/release_0_1_0"
CONVERTER = f"{PROGRAMS}/first_release.py"
PLACE = "/var/tmp"
DROP_IN = "/run/systemd/system/elastiod.service.d/first-release.conf"
# What the laboratory itself has put beside the package, and what remembers that a package was there.
LEFT = ("/opt/testbed", "/run/", "/tmp/", "/proc/", "/sys/", "/dev/", "/var/log/", "/var/lib/dpkg/", DATA)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checkout's package, and the same as an earlier release, by the name that each has in the guest."""
    new = checkout_package()
    return {"new": new, "old": as_release(new, OLDER, tmp_path_factory.mktemp("older"))}


@pytest.fixture(scope="module")
def older(target: Target, packages: dict[str, Path]) -> Target:
    """A machine on which an earlier release runs."""
    # Nothing boots from the guest's own initramfs; making it takes an emulated processor minutes.
    shell(target, "echo update_initramfs=no > /etc/initramfs-tools/update-initramfs.conf")
    for name, package in packages.items():
        copy_in(target.lab.guest, package, f"{PLACE}/{name}.deb", target.lab.folder)
    install(target, "old")
    wait_for_release(target, OLDER)
    return target


def install(target: Target, name: str) -> None:
    """apt takes what the package depends on from the machine: there is no network."""
    succeed(target, *APT, "--allow-downgrades", "install", f"{PLACE}/{name}.deb", timeout_s=APT_S)


def wait_for_release(target: Target, version: str) -> None:
    target.wait_for(lambda s: s["agent"]["version"] == version and s["recovered"], f"release {version} to run")


def cycle_of(target: Target) -> dict[str, Any]:
    found = target.lab.guest.status()["cycle"]
    assert found is not None
    return {key: found[key] for key in ("token", "volume_id", "trigger", "started_wall")}


def assert_the_same_cycle_ends(target: Target, before: dict[str, Any], bought: int) -> None:
    """The boost goes on under the new release, is flushed and released, and no record is lost."""
    wait_for_release(target, __version__)
    assert cycle_of(target) == before
    end_load(target.lab)
    assert target.lab.leaked() == ()
    assert len(target.lab.cloud.volumes()) == bought
    assert target.records_lost() == 0
    rows = [row for row in target.lab.guest.report()["phases"] if row["volume_id"] == before["volume_id"]]
    assert [(row["failure"], row["closed"] is not None) for row in rows] == [("", True)], "one bill, which is closed"


def test_an_upgrade_while_boosting_goes_on_with_the_same_cycle(older: Target) -> None:
    boost_with_records(older)
    before, bought = cycle_of(older), len(older.lab.cloud.volumes())
    install(older, "new")
    assert_the_same_cycle_ends(older, before, bought)


def test_the_state_of_0_1_0_is_migrated_while_boosting(older: Target) -> None:
    """Between the stop of the old agent and the start of the new one its state becomes what 0.1.0 would have left."""
    install(older, "old")
    wait_for_release(older, OLDER)
    agent = older.lab.guest.vm.agent
    agent.write_file(CONVERTER, (program := Path(converter())).read_bytes())
    assert program.name == Path(CONVERTER).name
    for name in ("journal.jsonl", "ledger.sql"):
        agent.write_file(f"{EXAMPLE}/{name}", (RELEASE / name).read_bytes())
    boost_with_records(older)
    before, bought = cycle_of(older), len(older.lab.cloud.volumes())
    hook = f"ExecStopPost=+/usr/bin/python3 {CONVERTER} {STATE} {EXAMPLE}"
    agent.write_file(DROP_IN, f"[Service]\n{hook}\n".encode())
    shell(older, "systemctl daemon-reload")
    install(older, "new")
    shell(older, f"rm {DROP_IN}; systemctl daemon-reload")
    assert "first_release" not in shell(older, "systemctl show elastiod -P ExecStopPost")
    assert_the_same_cycle_ends(older, before, bought)


def converter() -> str:
    from elastio_testbed.guest import first_release

    return str(first_release.__file__)


def test_a_purge_is_refused_while_boosting(older: Target) -> None:
    boost_with_records(older)
    before = cycle_of(older)
    code, output = older.run(*APT, "purge", "elastio", timeout_s=APT_S)
    assert code != 0, output
    assert cycle_of(older) == before, "the agent runs on"
    end_load(older.lab)
    assert older.records_lost() == 0
    assert older.lab.leaked() == ()


def test_a_purge_leaves_nothing_but_the_data(older: Target) -> None:
    shell(older, f"echo kept > {DATA}/kept && sync {DATA}/kept")
    succeed(older, *APT, "purge", "elastio", timeout_s=APT_S)
    assert shell(older, f"cat {DATA}/kept") == "kept"
    assert older.run("sh", "-c", "command -v elastio elastiod")[0] != 0
    assert shell(older, "systemctl list-units --state=active,failed --plain --no-legend 'elastio*'") == ""
    assert older.run("getent", "group", "elastio")[0] != 0
    found = set(shell(older, "find / -xdev -name '*elastio*' 2>/dev/null || true").splitlines())
    overlay = {"/" + str(path.relative_to(OVERLAY)) for path in OVERLAY.rglob("*elastio*")}
    assert {name for name in found - overlay if not name.startswith(LEFT)} == set()
