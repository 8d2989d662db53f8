"""The package of out/deb on Debian 12 and 13, with nothing but apt's packages: installed, used, upgraded, purged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

from elastio.agent.journal import Journal
from elastio.core.state import AgentState, Phase
from elastio_cli.main import main
from tests.values import cycle

from .conftest import DEB, System

COMMANDS = main.list_commands(click.Context(main))
MODULES = "/usr/share/elastio"
ISOLATED = f"import sys; sys.path.insert(0, {MODULES!r})\n"
VERSIONS = (
    "import importlib.metadata as m, json\n"
    f"bundled = [d.name for d in m.distributions(path=[{MODULES!r}])]\n"
    "print(json.dumps([{d.name: d.version for d in m.distributions()}, {n: m.requires(n) or [] for n in bundled}]))\n"
)
STATE = "var/lib/elastio"
WITH_LOCAL = ("env", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def remember(system: System, *states: AgentState) -> Path:
    """The journal of an agent that was in these states."""
    journal = Journal(system.root / STATE / "journal.jsonl", "boot")
    journal.open()
    for state in states:
        journal.decision(Phase.IDLE, state, "because", now=1.0, wall=1.0)
    journal.close()
    return journal.path


OPEN = AgentState(phase=Phase.BOOSTING, cycle=cycle())
CLOSED = AgentState(phase=Phase.IDLE, cycle=None)


def test_every_command_has_its_help_page_and_completion_and_writes_no_file(system: System) -> None:
    before = system.names()
    assert system.run("elastio", "--version").startswith("elastio, version ")
    assert system.run("elastiod", "--version").startswith("elastiod, version ")
    for command in COMMANDS:
        assert system.run("elastio", command, "--help").startswith(f"Usage: elastio {command} ")
        assert f"/usr/share/man/man1/elastio-{command}.1.gz" in before
    asked = ["env", "_ELASTIO_COMPLETE=bash_complete", "COMP_WORDS=elastio st", "COMP_CWORD=1", "elastio"]
    assert "plain,status" in system.run(*asked).splitlines()
    system.run("bash", "-n", "/usr/share/bash-completion/completions/elastio")
    assert system.names() == before
    assert system.run("dpkg", "--verify", "elastio") == ""


def test_the_providers_and_their_libraries_can_be_imported(system: System) -> None:
    code = "import boto3, openstack, elastio_adviser.cli.audit, elastio_aws.provider, elastio_calibration.cli.plan\n"
    system.run("python3", "-I", "-W", "error::ImportWarning", "-c", ISOLATED + code)


def test_a_child_process_finds_the_sdk(system: System) -> None:
    code = "from pathlib import Path\nfrom elastio_aws import slim\nprint(slim.prepare(Path('/root/slim')))\n"
    assert system.run("python3", "-I", "-c", ISOLATED + code).startswith("/root/slim/")


def test_debians_releases_are_new_enough_for_what_is_bundled(system: System) -> None:
    versions, required = json.loads(system.run("python3", "-I", "-c", ISOLATED + VERSIONS))
    found = {canonical(name): version for name, version in versions.items()}
    wrong = []
    for name, lines in required.items():
        for requirement in map(Requirement, lines):
            extras = ("", "aws", "openstack") if name == "elastio" else ("",)
            if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                continue
            there = found.get(canonical(requirement.name))
            if there is None or not requirement.specifier.contains(there):
                wrong.append(f"{name} needs {requirement}, found {there}")
    assert wrong in ([], ["pbr needs setuptools, found None"])


def test_services_are_enabled_and_configured_by_nobody(system: System) -> None:
    wanted = system.root / "etc/systemd/system/multi-user.target.wants"
    assert {"elastiod.service", "elastio-shutdown.service"} <= {path.name for path in wanted.iterdir()}
    assert not (system.root / "etc/elastio/elastio.toml").exists()
    assert "elastio" in system.groups()


def test_purge_leaves_nothing(bare: System) -> None:
    before, groups = bare.names(), bare.groups()
    bare.install()
    remember(bare, OPEN, CLOSED)
    (bare.root / "etc/elastio/elastio.toml").write_text("# written by init\n")
    (bare.root / "var/cache/elastio/botocore").mkdir(parents=True)
    (bare.root / "run/elastio").mkdir()
    bare.run("dpkg", "--purge", "elastio")
    assert bare.names() == before
    assert bare.groups() == groups


def test_remove_keeps_state_and_configuration(system: System) -> None:
    journal, config = remember(system, CLOSED), system.root / "etc/elastio/elastio.toml"
    config.write_text("# written by init\n")
    system.run("dpkg", "--remove", "elastio")
    assert journal.exists()
    assert config.exists()
    assert not (system.root / MODULES.lstrip("/")).exists()


def test_an_open_cycle_refuses_the_removal(system: System) -> None:
    remember(system, OPEN)
    assert "elastio flush --wait" in system.fails("dpkg", "--purge", "elastio")
    assert system.is_installed()
    assert system.run("elastio", "--version")


def test_removed_anyway_a_purge_keeps_journal_and_configuration(system: System) -> None:
    journal, config = remember(system, OPEN), system.root / "etc/elastio/elastio.toml"
    config.write_text("# written by init\n")
    system.run("env", "ELASTIO_REMOVE=anyway", "dpkg", "--purge", "elastio")
    assert not system.is_installed()
    assert journal.exists()
    assert config.exists()


def test_a_cycle_that_was_opened_after_a_removal_is_kept_too(system: System) -> None:
    remember(system, CLOSED)
    system.run("dpkg", "--remove", "elastio")
    journal = remember(system, OPEN)
    system.run("touch", "-d", "tomorrow", f"/{STATE}/journal.jsonl")
    system.run("dpkg", "--purge", "elastio")
    assert journal.exists()


@pytest.fixture
def newer(system: System) -> str:
    """The same package with a later version."""
    script = f"dpkg-deb -R {DEB} /tmp/newer && sed -i 's/^Version: .*/&.1/' /tmp/newer/DEBIAN/control"
    system.run("sh", "-c", f"rm -rf /tmp/newer && {script} && dpkg-deb --build /tmp/newer /tmp/newer.deb")
    return "/tmp/newer.deb"


def test_an_upgrade_with_an_open_cycle_keeps_state_and_what_is_enabled(system: System, newer: str) -> None:
    journal = remember(system, OPEN)
    text = journal.read_text()
    (system.root / "etc/systemd/system/multi-user.target.wants/elastiod.service").unlink()
    system.run("dpkg", "--install", newer)
    assert journal.read_text() == text
    assert not (system.root / "etc/systemd/system/multi-user.target.wants/elastiod.service").exists()
    assert system.run("dpkg", "--verify", "elastio") == ""
    assert "not released" in system.fails("elastio", "state")


@pytest.fixture
def asked(system: System) -> Iterator[Callable[[], list[str]]]:
    """What the maintainer scripts ask of the service manager, which seems to run."""
    programs, log = system.root / "usr/local/bin", "/tmp/asked"
    for name in ("deb-systemd-invoke", "systemctl"):
        (programs / name).write_text(f'#!/bin/sh\necho "$@" >>{log}\n')
        (programs / name).chmod(0o755)
    (system.root / "run/systemd/system").mkdir(parents=True, exist_ok=True)
    (system.root / log.lstrip("/")).write_text("")
    yield lambda: system.run("cat", log).splitlines()
    shutil.rmtree(system.root / "run/systemd/system")
    for path in programs.iterdir():
        path.unlink()


def test_an_upgrade_restarts_the_agent_and_stops_nothing(
    system: System, newer: str, asked: Callable[[], list[str]]
) -> None:
    """To stop elastio-shutdown.service means to flush the cache; a stopped timer would not be started again."""
    system.run(*WITH_LOCAL, "dpkg", "--install", newer)
    assert asked()[-2:] == ["try-restart elastiod.service", "--system try-restart elastiod@*.service"]
    assert [line for line in asked() if "restart" not in line] == ["--system daemon-reload"]


def test_a_removal_stops_every_unit(system: System, asked: Callable[[], list[str]]) -> None:
    units = {path.name for path in (system.root / "usr/lib/systemd/system").glob("elastio*")}
    system.run(*WITH_LOCAL, "dpkg", "--remove", "elastio")
    stopped = {unit.replace("@*", "@") for line in asked() if " stop " in f" {line} " for unit in line.split()}
    assert units <= stopped
