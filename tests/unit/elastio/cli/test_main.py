"""The group itself: every command loads, every expected error is one line and an exit code."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click
import pytest

from elastio import errors
from elastio.cli.main import COMMANDS
from elastio.control.exit_codes import Exit, TimedOutError, exit_of, sentence
from elastio.control.protocol import RefusedByAgentError, UnreachableError

from .conftest import Shell

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_explains_itself(name: str, elastio: Shell) -> None:
    result = elastio(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: main {name}")


def test_help_lists_every_command(elastio: Shell) -> None:
    listed = elastio("--help").stdout
    assert all(f"\n  {name} " in listed for name in COMMANDS)


def test_an_unknown_command_is_wrong_usage(elastio: Shell) -> None:
    assert elastio("format").exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), Exit.CONFIG),
        (UnreachableError("x"), Exit.UNREACHABLE),
        (RefusedByAgentError("x"), Exit.REFUSED),
        (errors.LockedError("x"), Exit.REFUSED),
        (TimedOutError("x"), Exit.TIMED_OUT),
        (errors.ControlError("x"), Exit.FAILED),
        (errors.NotOursError("x"), Exit.FAILED),
    ],
)
def test_each_error_ends_in_its_exit_code(error: errors.ElastioError, code: Exit) -> None:
    assert exit_of(error) is code


def test_an_error_of_several_lines_is_still_one() -> None:
    assert sentence(errors.HostError("first\n  second")) == "elastio: first second"


def test_the_reference_page_has_every_option_of_every_command() -> None:
    page = PAGE.read_text()
    for name, path in COMMANDS.items():
        module, _, attribute = path.partition(":")
        command = getattr(import_module(module), attribute)
        found = command.commands.values() if isinstance(command, click.Group) else [command]
        for each in found:
            shown = name if each is command else f"{name} {each.name}"
            assert f"`elastio {shown}" in page, shown
            section = page.partition(f"`elastio {shown}")[2].partition("\n##")[0]
            options = [p.opts[0] for p in each.params if isinstance(p, click.Option)]
            assert [option for option in options if option not in section] == [], shown


def test_the_reference_page_has_every_exit_code() -> None:
    page = PAGE.read_text()
    assert all(f"| {code.value} | `{code.name}` |" in page for code in Exit)
