"""`elastio profile`: where the time of a command, or of a cgroup, goes, and how much bandwidth is worth buying."""

from __future__ import annotations

import json
import math
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from elastio.control.exit_codes import Exit
from elastio.errors import ElastioError
from elastio.host.commands import Started
from elastio.host.disk_activity import DiskActivity, disk_below, limits_of_cgroup, limits_of_process
from elastio.host.task_states import CgroupMembers, TaskStates
from elastio.strategy.account import Limit
from elastio.strategy.bandwidth import curves_of
from elastio.strategy.memory import STOP_GAIN
from elastio_adviser.bandwidth_advice import advise, steps_mb_s
from elastio_adviser.cli.profile_since import show
from elastio_adviser.cli.profile_view import Profile, to_dict, to_text
from elastio_adviser.command_tasks import Descendants, pressure_s
from elastio_adviser.observer import find_device
from elastio_adviser.profiler import Measured, Profiler
from elastio_cli.app import App
from elastio_cli.ledger import Since
from elastio_cli.options import Finite, duration
from elastio_cli.out_file import require_directory
from elastio_cli.terminal import handled

MB_S = Finite(min=0, min_open=True, max=1e6)
MOST_S = 31 * 86400.0
DRAWN = 60
# Options of a measurement, by their parameters.
MEASURES = {
    "for_s": "for",
    "device": "device",
    "cap_mb_s": "bandwidth",
    "with_processes": "processes",
    "png": "png",
}


@click.command(
    short_help="Run a command, and say where its time goes.",
    context_settings={"show_default": True, "allow_interspersed_args": False},
)
@click.option(
    "--since",
    metavar="DATE|AGO",
    type=Since(),
    help="Show the account that the agent has kept of bursts, from a local date, or from 90m, 12h, 7d, 4w ago.",
)
@click.option("--cgroup", metavar="NAME", help="Profile what runs in this cgroup, instead of a command.")
@click.option(
    "--for", "for_s", metavar="TIME", callback=duration(1, MOST_S), help="How long, of a cgroup  [default: 1m]"
)
@click.option("--device", metavar="DEV", help="Disk to watch  [default: that of the current directory]")
@click.option("--bandwidth", "cap_mb_s", type=MB_S, help="Bandwidth limit of the disk  [default: not known]")
@click.option("--most", "most_mb_s", type=MB_S, help="Bandwidth that could be used at most, such as the instance's.")
@click.option(
    "--stop-gain",
    type=Finite(min=0, max=0.5, min_open=True, max_open=True),
    default=STOP_GAIN,
    help="Share of the time that a doubling must save to be worth buying.",
)
@click.option("--processes", "with_processes", is_flag=True, show_default=False, help="Show each process too.")
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), help="Draw the curve here.")
@click.option("--json", "as_json", is_flag=True, show_default=False, help="Print everything as one JSON document.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def profile(ctx: click.Context, /, command: tuple[str, ...], cgroup: str | None, **options: Any) -> None:
    """Run COMMAND and say where its time goes: computing, or waiting for a processor, bandwidth or latency; how long it
    would take at other bandwidths; and how much is worth buying.

    With --since instead of COMMAND: the same of cgroups in the bursts of the adaptive device, from the ledger.

    Works on any disk: no cloud, no bcache, no root and no configuration are needed. What COMMAND prints goes to
    standard error, the answer to standard output. Ctrl-C goes to COMMAND. Code 1: COMMAND failed.
    """
    since = options.pop("since")
    if since is not None:
        _require_alone(ctx, command)
        show(ctx.obj, since, cgroup, options)
        return
    if bool(command) == bool(cgroup):
        raise click.UsageError("give a command after --, or a cgroup with --cgroup")
    if command and options["for_s"] is not None:
        raise click.UsageError("a command is profiled until it ends: --for is for a cgroup")
    app: App = ctx.obj
    device = options["device"]
    name = find_device(app.sysfs(), device).name if device else disk_below(app.sysfs(), Path.cwd())
    disk = DiskActivity(app.sysfs(), name)
    disk.read()  # before the command runs
    require_directory(options["png"])
    draw = None if options["png"] is None else _plot()
    found = _of_cgroup(app, cgroup, disk, options) if cgroup else _of_command(app, command, disk, options)
    if options["as_json"]:
        click.echo(json.dumps(to_dict(found), indent=2))
    else:
        click.echo(to_text(found, with_processes=options["with_processes"]), nl=False)
    if draw is not None:
        _draw(draw, found, options["png"])
    if found.exit_code:
        ctx.exit(Exit.FAILED)


def _require_alone(ctx: click.Context, command: tuple[str, ...]) -> None:
    """With `--since` nothing is measured."""
    given = [name for name in MEASURES if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if command or given:
        shown = [f"--{MEASURES[name]}" for name in given] or ["COMMAND"]
        raise click.UsageError(f"--since shows what the agent has measured: {', '.join(shown)} is for a measurement")


def _of_command(app: App, command: tuple[str, ...], disk: DiskActivity, options: dict[str, Any]) -> Profile:
    before_s = pressure_s(app.sysfs(), None)
    with app.start(command) as started, _passed_on(started):
        tasks = TaskStates(app.sysfs(), Descendants(app.sysfs(), started.pid))

        def limits() -> tuple[Limit, ...]:
            return limits_of_process(app.sysfs(), disk.name, started.pid)

        profiler = Profiler(tasks, disk, app.clock, started.wait, options["cap_mb_s"], limits)
        measured = profiler.run(math.inf, with_processes=_wants_processes(options))
        if measured.ended:
            started.wait(math.inf)
    after_s = pressure_s(app.sysfs(), None)
    return _profile(shlex.join(command), disk.name, measured, options, (before_s, after_s), started.exit_code)


def _of_cgroup(app: App, name: str, disk: DiskActivity, options: dict[str, Any]) -> Profile:
    members = CgroupMembers(app.sysfs(), name)
    before_s = pressure_s(app.sysfs(), members.folder)
    latest_s = before_s
    is_over = False

    def pause(seconds: float) -> bool:
        nonlocal latest_s
        shown_s = pressure_s(app.sysfs(), members.folder)
        latest_s = latest_s if shown_s is None else shown_s  # of a cgroup that is gone by now, the last one
        app.sleep(seconds)  # at the end: what is read next is read at once
        return is_over

    def end(*_: object) -> None:
        nonlocal is_over
        is_over = True

    def limits() -> tuple[Limit, ...]:
        return limits_of_cgroup(app.sysfs(), disk.name, members.name)

    with handled((signal.SIGTERM, signal.SIGINT), end):
        tasks = TaskStates(app.sysfs(), members)
        profiler = Profiler(tasks, disk, app.clock, pause, options["cap_mb_s"], limits)
        measured = profiler.run(options["for_s"] or 60.0, with_processes=_wants_processes(options))
    return _profile(members.name, disk.name, measured, options, (before_s, latest_s), None)


def _wants_processes(options: dict[str, Any]) -> bool:
    return bool(options["with_processes"])


def _profile(
    of: str,
    device: str,
    measured: Measured,
    options: dict[str, Any],
    pressure: tuple[float | None, float | None],
    exit_code: int | None,
) -> Profile:
    curves = curves_of(measured.totals, options["most_mb_s"] or math.inf)
    before_s, after_s = pressure
    return Profile(
        of=of,
        device=device,
        measured=measured,
        cap_mb_s=options["cap_mb_s"],
        curves=curves,
        stop_gain=options["stop_gain"],
        advice=advise(measured.totals, curves.likely, options["stop_gain"], measured.lost),
        exit_code=exit_code,
        pressure_s=None if before_s is None or after_s is None else after_s - before_s,
        pressure_of="the machine" if exit_code is not None else "the cgroup",
    )


# --- signals -----------------------------------------------------------------------------------------------------


@contextmanager
def _passed_on(started: Started) -> Iterator[None]:
    """SIGTERM goes to the command. SIGINT of a terminal reaches it anyway, and ends only the command."""

    def handle(number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            started.end()

    with handled((signal.SIGTERM, signal.SIGINT), handle):
        yield


# --- the picture -------------------------------------------------------------------------------------------------


def _plot() -> Any:
    """Raises ElastioError where no distribution that draws is installed: the agent itself has no library for it."""
    from elastio import registry  # noqa: PLC0415  importlib.metadata costs a start a tenth of its time

    entry = registry.installed(registry.PLOTS).get("bandwidth")
    if entry is None:
        raise ElastioError(
            "--png needs a plotting library: pip install '.[calibration]' in a checkout", code="plots.missing"
        )
    return registry.load(entry)


def _draw(draw: Any, found: Profile, path: Path) -> None:
    """The three curves over the bandwidths of the table. Raises ElastioError where there is no curve."""
    steps = steps_mb_s(found.curves.likely, found.stop_gain)
    if not steps:
        raise ElastioError("nothing waited for bandwidth: there is no curve to draw", code="profile.no_curve")
    ratio = (steps[-1] / steps[0]) ** (1 / (DRAWN - 1))
    at = [steps[0] * ratio**number for number in range(DRAWN)]
    least, likely, most = found.curves
    points = [(b, most.time_s(b), likely.time_s(b), least.time_s(b)) for b in at]
    best = found.curves.likely.inflection_mb_s(found.stop_gain)
    draw(points, best if 0 < best <= steps[-1] else None, f"time of {found.of} over bandwidth", path)
