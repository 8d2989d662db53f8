"""The group `elastio`, its options, and the one place where an error becomes a sentence and an exit code.

On stdout and stderr, what an encoding lacks is replaced, and an output that fails is one sentence. An error of the
system while something is written has a class of its own here, so that nothing else is taken for it. A closed pipe is
left to click, which ends the program in silence.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import io
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastio import __version__
from elastio.config.paths import DEFAULT_PATH
from elastio.control.exit_codes import Exit, exit_of, sentence
from elastio.errors import ElastioError
from elastio_cli.app import App
from elastio_cli.which_device import with_device

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Name -> module and attribute. Imported when used: `elastio status` should not wait for the rest.
COMMANDS = {
    "status": "elastio_cli.status:status",
    "watch": "elastio_cli.watch:watch",
    "shares": "elastio_cli.shares:shares",
    "boost": "elastio_cli.boost:boost",
    "expect": "elastio_cli.boost:expect",
    "flush": "elastio_cli.flush:flush",
    "pause": "elastio_cli.quiesce:pause",
    "resume": "elastio_cli.quiesce:resume",
    "quiesce": "elastio_cli.quiesce:quiesce",
    "unquiesce": "elastio_cli.quiesce:unquiesce",
    "recover": "elastio_cli.recover:recover",
    "gc": "elastio_cli.gc:gc",
    "janitor": "elastio_cli.janitor:janitor",
    "shutdown": "elastio_cli.flush:shutdown",
    "free": "elastio_cli.free:free",
    "state": "elastio_cli.state:state",
    "why": "elastio_cli.why:why",
    "events": "elastio_cli.events:events",
    "report": "elastio_cli.report:report",
    "metrics": "elastio_cli.metrics:metrics",
    "prices": "elastio_cli.prices:prices",
    "history": "elastio_cli.history:history",
    "config": "elastio_cli.config:config",
    "device": "elastio_cli.device:device",
    "setup": "elastio_cli.setup:setup",
    "init": "elastio_cli.init:init",
    "doctor": "elastio_cli.doctor:doctor",
}

# Headings of the help. Commands of other distributions are in it by name, or else under the last heading.
SECTIONS = {
    "Watch": ("status", "watch", "why", "events", "history", "shares", "report", "metrics"),
    "Boost": ("boost", "expect", "flush", "pause", "resume", "quiesce", "unquiesce"),
    "Set up": ("init", "setup", "doctor", "config", "device"),
    "Decide what to buy": ("observe", "audit", "simulate", "profile", "calibrate", "predict", "plan", "prices"),
    "Repair": ("recover", "free", "gc", "janitor"),
}
OTHERS = "Others"
# What `--sim` is for: these ask the agent, and neither read nor change anything else.
ASKING = {*SECTIONS["Boost"], "status", "watch", "why", "metrics", "recover", "gc", "shutdown"}


class Commands(click.Group):
    """Loads a command when it is named; turns every expected error into one sentence on stderr.

    Commands of other distributions come after the agent's own, and cannot replace one.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        with guarded():
            return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *(name for name in _extensions() if name not in COMMANDS)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        width = formatter.width - 6 - max(map(len, names))
        for title, listed in sections(names):
            with formatter.section(title):
                found = ((name, self.get_command(ctx, name)) for name in listed)
                formatter.write_dl([(name, each.get_short_help_str(width)) for name, each in found if each])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module, _, attribute = COMMANDS[cmd_name].partition(":")
            command = getattr(import_module(module), attribute)
        elif cmd_name in (found := _extensions()):
            command = _load(found[cmd_name])
        else:
            return None
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is not a command")
        return with_device(cmd_name, command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # click knows only commands that are loaded; options it suggests by itself.
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not close or args[0].startswith("-"):
                raise
            raise click.UsageError(f"{error.message} Did you mean {close[0]}?", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ElastioError as error:
            click.echo(sentence(error), err=True)
            ctx.exit(exit_of(error))


def sections(names: Collection[str]) -> list[tuple[str, list[str]]]:
    """Each heading with its commands; every name is under one, and no heading is empty."""
    known = {name for members in SECTIONS.values() for name in members}
    every = {**SECTIONS, OTHERS: [name for name in names if name not in known]}
    found = ((title, [name for name in members if name in names]) for title, members in every.items())
    return [(title, members) for title, members in found if members]


def _extensions() -> dict[str, EntryPoint]:
    from elastio import registry  # noqa: PLC0415  importlib.metadata costs a start a tenth of its time

    return registry.installed(registry.COMMANDS)


def _load(entry: EntryPoint) -> object:
    from elastio import registry  # noqa: PLC0415

    try:
        return registry.load(entry)
    except ElastioError as error:  # also while the help is printed, before `invoke`
        raise click.ClickException(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="elastio")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_PATH,
    show_default=True,
    help="Configuration file; its drop-ins are in FILE.d/.",
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Control socket of the agent  [default: as configured]",
)
@click.option("--sim", is_flag=True, help="Ask the simulated machine of elastiod --sim.")
@click.option(
    "--device", metavar="DEVICE", help="Device, where there are several: its name, UUID, /dev/bcacheN or mount point."
)
@click.pass_context
def main(ctx: click.Context, config_path: Path, socket: Path | None, sim: bool, device: str | None) -> None:
    """Ride I/O peaks on a short-lived fast volume.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 wrong configuration, 4 the agent does not answer, 5 refused,
    6 timed out; of `status --check` also 7 degraded, 8 faulted.
    """
    if sim and socket is not None:
        raise click.UsageError("give --sim or --socket, not both")
    if sim and ctx.invoked_subcommand not in ASKING:
        text = (
            f"elastio {ctx.invoked_subcommand} is about this machine, and a simulated one has no files: leave out --sim"
        )
        raise ElastioError(f"{text}, or ask with status, why, watch or metrics", code="sim.unanswered")
    if sim:
        from elastio import registry  # noqa: PLC0415

        socket = registry.simulator("socket")()
    if ctx.obj is None:
        is_chosen = config_path != DEFAULT_PATH or socket is not None
        directory = None if is_chosen else DEFAULT_PATH.parent
        ctx.obj = App(config_path=config_path, socket=socket, directory=directory, is_simulated=sim)
    if device is not None:
        ctx.obj = replace(ctx.obj, wanted=device)


NAMES = ("stdout", "stderr")


class OutputError(OSError):
    """stdout or stderr cannot be written."""


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise OutputError(error.errno, error.strerror) from error


@contextmanager
def guarded() -> Iterator[None]:
    """Ends the program with Exit.FAILED if its output cannot be written. Streams that a test has put there stay."""
    for name in NAMES:
        if type(stream := getattr(sys, name)) is io.TextIOWrapper:
            setattr(sys, name, _tolerant(stream))
    try:
        yield
    except OutputError as error:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"elastio: the output cannot be written: {error.strerror}\n")
            sys.stderr.flush()
        _discard()
        sys.exit(Exit.FAILED)


def _tolerant(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    raw = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="replace" if stream.errors in ("strict", "surrogateescape") else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _discard() -> None:
    """What is still in the buffers goes nowhere: the interpreter would fail on it once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(null, number)
