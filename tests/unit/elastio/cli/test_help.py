"""The help texts of the agent's own commands."""

from __future__ import annotations

from importlib import import_module

import click
import pytest

from elastio.cli.elastiod import main as elastiod
from elastio.cli.main import COMMANDS, main


def loaded(path: str) -> click.Command:
    module, _, attribute = path.partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command


OWN = [loaded(path) for path in COMMANDS.values() if path.startswith("elastio.cli.")]
ALL = [
    main,
    elastiod,
    *OWN,
    *(each for group in OWN if isinstance(group, click.Group) for each in group.commands.values()),
]


@pytest.mark.parametrize("command", ALL, ids=lambda command: str(command.name))
def test_every_command_and_every_option_has_a_help_text(command: click.Command) -> None:
    assert command.help
    assert [p.name for p in command.params if isinstance(p, click.Option) and not p.help] == []
