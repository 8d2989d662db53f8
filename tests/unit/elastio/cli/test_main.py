"""The group itself: every command loads, every expected error is one line and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from elastio import errors
from elastio.cli import extensions
from elastio.cli.main import main
from elastio.control.exit_codes import Exit, TimedOutError, exit_of, sentence
from elastio.control.protocol import RefusedByAgentError, UnreachableError
from tests.values import present

from .conftest import Shell

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "cli.md"
CONTEXT = click.Context(main)
NAMES = main.list_commands(CONTEXT)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_loads_and_explains_itself(name: str, elastio: Shell) -> None:
    result = elastio(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: main {name}")


def test_help_lists_every_command(elastio: Shell) -> None:
    listed = elastio("--help").stdout
    assert all(f"\n  {name} " in listed for name in NAMES)
    assert {"status", "calibrate", "predict", "plan"} <= set(NAMES)


@pytest.fixture
def hello(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed distribution with a command of its own, and one that has the name of the agent's."""
    info = tmp_path / "site" / "hello-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[elastio.commands]\nhello = hello:hello\nwhy = hello:hello\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "hello", raising=False)  # that of another test
    return tmp_path / "site" / "hello.py"


def test_an_installed_distribution_adds_a_command_and_replaces_none(hello: Path, elastio: Shell) -> None:
    hello.write_text("import click\n@click.command()\ndef hello():\n    click.echo('hello')\n")
    assert elastio("hello").stdout == "hello\n"
    assert elastio("why", "--help").stdout.startswith("Usage: main why")


def test_a_command_that_cannot_be_loaded_is_one_line(hello: Path, elastio: Shell) -> None:
    hello.write_text("import no_such_library\n")
    result = elastio("hello")
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.FAILED, 1)
    assert elastio("status").exit_code == Exit.UNREACHABLE


def test_the_agents_own_commands_look_for_no_others(elastio: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(group: str) -> None:
        raise AssertionError(group)

    monkeypatch.setattr(extensions, "installed", looked)
    assert elastio("status").exit_code == Exit.UNREACHABLE


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
    for name in NAMES:
        command = present(main.get_command(CONTEXT, name))
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
