"""The choice of the guests' Debian release."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from elastio_testbed.cli import main
from elastio_testbed.image import debian
from elastio_testbed.image.debian import chosen_suite
from elastio_testbed.image.tools import ImageError


def test_the_option_overrides_the_environment_which_overrides_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTIO_SUITE", raising=False)
    assert chosen_suite() == "bookworm"
    monkeypatch.setenv("ELASTIO_SUITE", "trixie")
    assert chosen_suite() == "trixie"
    assert chosen_suite("bookworm") == "bookworm"


def test_an_unknown_suite_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(main, ["faults", "--list", "--suite", "sarge"]).exit_code == 2
    monkeypatch.setenv("ELASTIO_SUITE", "sarge")
    with pytest.raises(ImageError):
        chosen_suite()


def test_debian_13_gets_the_units_that_open_luks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def bootstrap(argv: list[str], *, timeout_s: float) -> None:
        assert timeout_s > 0
        asked.extend(word for word in argv if word.startswith("--include="))
        Path(argv[-1]).touch()

    monkeypatch.setattr(debian, "run", bootstrap)
    for suite in debian.SUITES:
        debian.debian_root(tmp_path, suite, ["cryptsetup-bin"])
    assert ["systemd-cryptsetup" in include.split(",") for include in asked] == [s == "trixie" for s in debian.SUITES]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        nested = (*path, name)
        found |= commands(command, nested) if isinstance(command, click.Group) else {" ".join(nested): command}
    return found


def test_every_command_that_boots_guests_takes_the_suite() -> None:
    without = {"optimum", "tables", "render", "cloud openstack up", "cloud openstack down", "cloud openstack status"}
    taking = {
        name for name, command in commands(main).items() if any("--suite" in option.opts for option in command.params)
    }
    assert taking == set(commands(main)) - without
