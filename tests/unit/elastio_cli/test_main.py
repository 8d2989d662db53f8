"""The group itself: every command loads, every expected error is one line and an exit code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from elastio import errors, registry
from elastio.agent.elastiod import main as elastiod
from elastio.control.exit_codes import Exit, TimedOutError, exit_of, sentence
from elastio.control.protocol import RefusedByAgentError, UnreachableError
from elastio_cli.app import App
from elastio_cli.main import ASKING, OTHERS, SECTIONS, main, sections
from tests.values import present

from .conftest import Shell

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
CONTEXT = click.Context(main)
NAMES = main.list_commands(CONTEXT)


def loaded() -> dict[str, click.Command]:
    """Every command, and those of a group, by their words."""
    found = {name: present(main.get_command(CONTEXT, name)) for name in NAMES}
    groups = {name: group.commands for name, group in found.items() if isinstance(group, click.Group)}
    return found | {f"{name} {one}": command for name, group in groups.items() for one, command in group.items()}


def test_help_lists_every_command(elastio: Shell) -> None:
    listed = elastio("--help").stdout
    assert all(listed.count(f"\n  {name} ") == 1 for name in NAMES)
    assert {"status", "calibrate", "predict", "plan"} <= set(NAMES)


@pytest.mark.parametrize("words", [(), ("config",), ("device",)], ids=" ".join)
def test_no_description_in_a_list_of_commands_is_cut_or_takes_two_lines(words: tuple[str, ...]) -> None:
    command = main.get_command(CONTEXT, words[0]) if words else main
    assert isinstance(command, click.Group)
    # What click has of a terminal of 80 columns.
    listed = CliRunner().invoke(main, [*words, "--help"], terminal_width=78).stdout
    for name in command.list_commands(CONTEXT):
        shown = present(command.get_command(CONTEXT, name)).get_short_help_str(80)
        assert not shown.endswith("..."), name
        assert re.search(rf"^  {name} +{re.escape(shown)}$", listed, re.MULTILINE), name


def test_every_command_is_under_one_heading_and_no_heading_is_empty() -> None:
    found = sections([*NAMES, "hello"])
    assert sorted(name for _, names in found for name in names) == sorted([*NAMES, "hello"])
    assert "hello" in dict(found)[OTHERS]
    assert sections(["status", "gc"]) == [("Watch", ["status"]), ("Repair", ["gc"])]


def test_every_command_that_a_heading_names_is_there() -> None:
    assert {name for names in SECTIONS.values() for name in names} <= set(NAMES)


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

    monkeypatch.setattr(registry, "installed", looked)
    assert elastio("status").exit_code == Exit.UNREACHABLE


def test_an_unknown_command_is_wrong_usage(elastio: Shell) -> None:
    assert elastio("format").exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("bost",), "boost"),
        (("statsu",), "status"),
        (("calibrat",), "calibrate"),
        (("config", "chek"), "check"),
        (("status", "--jsn"), "--json"),
    ],
)
def test_a_mistyped_word_is_answered_by_the_nearest_one(typed: tuple[str, ...], meant: str, elastio: Shell) -> None:
    result = elastio(*typed)
    assert result.exit_code == Exit.USAGE
    assert f"Did you mean '{meant}'?" in result.stderr or f"Did you mean {meant}?" in result.stderr


def test_the_simulated_machine_needs_no_socket_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    result = CliRunner().invoke(main, ["--sim", "status"])
    assert result.exit_code == Exit.UNREACHABLE
    assert f"{tmp_path}/elastio-sim.sock" in result.stderr
    assert CliRunner().invoke(main, ["--sim", "--socket", "other", "status"]).exit_code == Exit.USAGE


def test_with_sim_the_simulated_agent_is_asked_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is about this machine is refused, whatever it would do to it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(errors.ElastioError, "__str__", lambda error: error.code)
    assert set(NAMES) > ASKING
    for name in set(NAMES) - ASKING:
        result = CliRunner().invoke(main, ["--sim", name])
        assert (result.exit_code, result.stderr.split()[-1]) == (Exit.FAILED, "sim.unanswered"), name
    for name in ASKING - {"expect", "metrics", "shutdown", "watch"}:
        assert CliRunner().invoke(main, ["--sim", name]).exit_code == Exit.UNREACHABLE, name


def test_the_configuration_of_a_simulated_machine_is_its_own(tmp_path: Path) -> None:
    assert App(is_simulated=True).config().provider.name == "sim"
    with pytest.raises(errors.ConfigError):
        App(config_path=tmp_path / "none.toml", is_simulated=True).config()


@pytest.mark.parametrize(
    "points", ["", "[elastio.simulator]\nrun = no_such_module:run\nsocket = no_such_module:socket\n"]
)
def test_without_the_simulator_sim_is_refused_in_a_line(
    points: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "elastio-0.dist-info"  # found before the one that is installed, and in its place
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elastio\nVersion: 0\n")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(errors.ElastioError, "__str__", lambda error: error.code)
    for program, arguments in ((main, ["--sim", "status"]), (elastiod, ["--sim"])):
        result = CliRunner().invoke(program, arguments)
        assert (result.exit_code, result.stderr.split()[1:]) == (Exit.FAILED, ["simulator.missing"])


def test_nothing_is_suggested_for_a_word_that_is_like_no_command(elastio: Shell) -> None:
    assert "mean" not in elastio("xyzzy").stderr


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


def test_every_command_and_every_option_has_a_help_text_and_is_in_the_reference_page() -> None:
    page = PAGE.read_text()
    for name, command in loaded().items():
        assert command.help, name
        assert f"`elastio {name}" in page, name
        section = page.partition(f"`elastio {name}")[2].partition("\n##")[0]
        own = (p for p in command.params if p.expose_value or p.opts != ["--device"])  # that one is said once for all
        options = [p for p in own if isinstance(p, click.Option)]
        assert [p.name for p in options if not p.help or p.opts[0] not in section] == [], name
    for program in (main, elastiod):
        assert program.help
        assert [p.name for p in program.params if isinstance(p, click.Option) and not p.help] == []


def test_the_reference_page_has_every_exit_code() -> None:
    page = PAGE.read_text()
    assert all(f"| {code.value} | `{code.name}` |" in page for code in Exit)
