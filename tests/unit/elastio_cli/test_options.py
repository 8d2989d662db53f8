"""What the options of all commands accept, whatever the command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from elastio.control.exit_codes import Exit
from elastio_cli.main import main
from elastio_testbed.cli import main as laboratory
from tests.values import present

from .conftest import FakeAgent, Shell

NO_NUMBERS = ("nan", "-nan", "inf", "-inf", "1e999")


def parameters(group: click.Group, words: str) -> Iterator[tuple[str, click.Parameter]]:
    """Every parameter of every command, also of groups in groups, with the words that name it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command, called = present(group.get_command(context, name)), f"{words} {name}"
        yield from ((f"{called} {each.opts[0]}", each) for each in command.params)
        if isinstance(command, click.Group):
            yield from parameters(command, called)


def accepted(parameter: click.Parameter, value: str) -> bool:
    try:
        parameter.type.convert(value, parameter, None)
    except click.BadParameter:
        return False
    return True


NUMBERS = [
    pytest.param(parameter, id=name)
    for name, parameter in (*parameters(main, "elastio"), *parameters(laboratory, "elastio-testbed"))
    if accepted(parameter, "1") and not accepted(parameter, "one") and not getattr(parameter, "is_flag", False)
]


def test_the_options_that_take_a_number_are_found() -> None:
    names = {each.id for each in NUMBERS}
    assert {"elastio boost --size", "elastio quiesce --hold", "elastio setup --bandwidth"} <= names
    assert {"elastio flush --timeout", "elastio calibrate --datasets", "elastio-testbed predict --max-time"} <= names


@pytest.mark.parametrize("option", NUMBERS)
def test_no_option_takes_nan_or_infinity_for_a_number(option: click.Parameter) -> None:
    assert [value for value in NO_NUMBERS if accepted(option, value)] == []


@pytest.mark.parametrize(
    "line",
    [
        ("boost", "--size", "nan"),
        ("boost", "--wait", "--timeout", "inf"),
        ("flush", "--wait", "--timeout", "nan"),
        ("quiesce", "--hold", "nan"),
        ("init", "--bandwidth", "nan"),
        ("setup", "/dev/vdb", "/data", "--max-cost-per-day", "inf"),
    ],
)
def test_nan_and_infinity_are_wrong_usage_and_nothing_is_asked(
    line: tuple[str, ...], agent: FakeAgent, elastio: Shell
) -> None:
    assert elastio(*line).exit_code == Exit.USAGE
    assert agent.asked == []


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (("boost", "--size", "0.0000000001"), "--size"),
        (("boost", "--size", "65537"), "--size"),
        (("expect", "--in", "5m", "--size", "999999999T"), "--size"),
        (("expect", "--in", "5m", "--size", "0.0001k"), "--size"),
        (("expect", "--in", "8d"), "--in"),
        (("recover", "--volume", "a b"), "--volume"),
        (("recover", "--foreign", "a/b"), "--foreign"),
        (("recover", "--volume", ""), "--volume"),
        (("quiesce", "--hold", "302401"), "--hold"),
        (("why", "-n", "0"), "-n"),
    ],
)
def test_what_the_agent_cannot_be_asked_is_wrong_usage_of_the_option(
    line: tuple[str, ...], option: str, agent: FakeAgent, elastio: Shell
) -> None:
    done = elastio(*line)
    assert (done.exit_code, agent.asked) == (Exit.USAGE, [])
    assert f"'{option}'" in done.stderr
