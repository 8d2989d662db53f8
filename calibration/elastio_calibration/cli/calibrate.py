"""`elastio calibrate`: measure, study, solve, format."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import click

from elastio.errors import ElastioError
from elastio.units import format_duration
from elastio_calibration.cli.options import FILE, Sizes, require_extra
from elastio_calibration.errors import CalibrationError
from elastio_calibration.fio import PATTERNS, Fio
from elastio_calibration.live import LiveTarget, Ports, ledger_cycles, quoting, require_adaptive
from elastio_calibration.output_file import require_replaceable
from elastio_calibration.record import Record, RecordFile, read
from elastio_calibration.schedule import PRESETS, WRITE, Preset, Schedule, estimate, schedule
from elastio_calibration.target import Labels, Target, notes_of
from elastio_calibration.target import calibrate as run
from elastio_calibration.writer import Writer
from elastio_cli.app import App
from elastio_cli.options import ABOVE_0, AT_LEAST_0
from elastio_cli.out_file import require_directory

STAGES = ("run", "study", "solve", "format")


@dataclass(frozen=True, slots=True)
class Asked:
    """The options."""

    plan: str
    datasets: tuple[float, ...] | None
    caches: tuple[float, ...] | None
    repeats: int | None
    scale: float
    static: bool
    writers: int
    pace: float
    pattern: str
    record: Path
    profile: Path
    stage: str
    backing_type: str
    cache_type: str
    prices: bool
    sim: bool
    yes: bool

    def schedule(self) -> Schedule:
        """The schedule of the plan, with the sizes given instead of its own. Raises CalibrationError."""
        preset = PRESETS[self.plan]
        given = Preset(
            self.datasets or preset.datasets_gb,
            self.caches or preset.caches_gb,
            self.repeats or preset.repeats,
            preset.paired,
        )
        return schedule(given, static=self.static, scale=self.scale, pattern=self.pattern)

    def labels(self, provider: str) -> Labels:
        types = (self.backing_type or provider, self.cache_type or provider)
        return Labels(*types, self.writers, self.scale, self.pace)


@click.command(short_help="Measure how fast datasets are written with caches.")
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--plan", type=click.Choice(list(PRESETS)), default="standard", show_default=True, help="Preset grid.")
@click.option("--datasets", type=Sizes(), help="Dataset sizes in GB, instead of the plan's.")
@click.option("--caches", type=Sizes(), help="Cache sizes in GB, instead of the plan's.")
@click.option("--repeats", type=click.IntRange(1, 100), help="Number of measurements per point.")
@click.option("--scale", type=ABOVE_0, default=1.0, show_default=True, help="Factor for all sizes.")
@click.option("--static/--no-static", default=True, help="Whether the slow volume is measured without a cache, too.")
@click.option("--writers", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of parallel writers.")
@click.option(
    "--pace",
    type=AT_LEAST_0,
    default=0.0,
    show_default=True,
    help="Rate in MB/s at which the application produces its data; 0: no limit.",
)
@click.option(
    "--pattern",
    type=click.Choice(PATTERNS),
    default=WRITE,
    show_default=True,
    help="I/O pattern; all except write need fio.",
)
@click.option("--record", type=FILE, default="calibration.jsonl", show_default=True, help="Record of the measurements.")
@click.option("--profile", type=FILE, default="profile.json", show_default=True, help="Profile to write.")
@click.option("--stage", type=click.Choice(["all", *STAGES]), default="all", show_default=True, help="Stage to run.")
@click.option("--backing-type", default="", help="Type of the backing volume, for the record.")
@click.option("--cache-type", default="", help="Type of the cache volumes, for the record.")
@click.option("--prices/--no-prices", default=True, help="Whether the provider is asked for prices.")
@click.option("--sim", is_flag=True, help="Measure the simulator instead of this machine.")
@click.option("--yes", is_flag=True, help="Buy volumes without asking for confirmation.")
@click.pass_obj
def calibrate(app: App, /, directory: Path | None, **options: Any) -> None:
    """Measure how fast datasets are written and how long caches are held, with the running agent.

    DIRECTORY is on the filesystem of the adaptive device, which nothing else may use meanwhile. The stages are run,
    study, solve and format; all but the first need only the record and run on any machine.
    """
    asked = Asked(**options)
    for path in (asked.record, asked.profile):
        require_directory(path)
    require_replaceable(asked.profile, kept=asked.record)
    if asked.stage != "run":
        require_extra()
    if asked.stage in ("all", "run"):
        target = _simulated(directory, asked) if asked.sim else _live(app, directory, asked)
        _measure(app, target, asked)
    if asked.stage != "run":
        _conclude(read(asked.record), asked.stage, asked.profile)


def _simulated(directory: Path | None, asked: Asked) -> Target:
    """Raises CalibrationError for options that the simulator has no model of."""
    from elastio_calibration.simulated import SimulatedTarget  # noqa: PLC0415  a guest starts faster without it

    if asked.pattern != WRITE:
        raise CalibrationError(f"--sim has no model of the pattern {asked.pattern}: use write")
    given = {
        "DIRECTORY": directory is not None,
        "--pace": asked.pace > 0,
        "--writers": asked.writers > 1,
        "--backing-type": asked.backing_type,
        "--cache-type": asked.cache_type,
        "--no-prices": not asked.prices,
    }
    if any(given.values()):
        names = ", ".join(name for name, is_given in given.items() if is_given)
        raise CalibrationError(f"--sim does not use {names}: leave them out")
    return SimulatedTarget(scale=asked.scale)


def _live(app: App, directory: Path | None, asked: Asked) -> LiveTarget:
    """Raises ElastioError where the directory is not on the adaptive device."""
    if directory is None:
        raise click.UsageError("name a DIRECTORY on the filesystem of the adaptive device, or --sim")
    if asked.pace and asked.pattern != WRITE:
        raise click.UsageError("--pace needs the pattern write")
    config = app.config()
    require_adaptive(directory, config, app.sysfs())
    writer = Writer(directory, asked.writers, pace_mb_s=asked.pace)
    sizes = tuple(sorted({p.cache_bytes for p in asked.schedule().points if p.cache_bytes}))
    ports = Ports(
        writer,
        Fio(directory, asked.writers),
        ledger_cycles(config.agent.state_dir / "ledger.sqlite"),
        quote=quoting(config) if asked.prices else None,
        quoted_bytes=sizes,
    )
    return LiveTarget(app.client(), config, asked.labels(config.provider.name), ports)


def _measure(app: App, target: Target, asked: Asked) -> None:
    plan, file = asked.schedule(), RecordFile(asked.record)
    record = file.preview(target.header())
    left = record.remaining(plan)
    if not left and record.saved is None:
        click.echo(f"{file.path} is complete: nothing to measure")
        return
    if left:
        target.check(left)
        click.echo(_announce(record, plan), err=True)
        _require_consent(app, asked)
    _run(target, plan, file)


def _require_consent(app: App, asked: Asked) -> None:
    """Raises CalibrationError where there is no terminal to ask on."""
    if asked.yes or asked.sim:
        return
    if not app.is_terminal():
        raise CalibrationError("this buys volumes: confirm with --yes")
    click.confirm("Continue?", abort=True, err=True)


def _run(target: Target, plan: Schedule, file: RecordFile) -> None:
    """Raises ElastioError, also for an interruption; prints what failed after it."""
    try:
        with interrupted_by_signals():
            run(target, plan, file, lambda text: click.echo(text, err=True))
    except KeyboardInterrupt as stop:
        kept = f"interrupted; {file.path} keeps the measurements, the same command continues"
        raise ElastioError("; ".join([kept, *notes_of(stop)])) from None
    except ElastioError as error:
        for note in notes_of(error):
            click.echo(note, err=True)
        raise


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: files are removed and the agent's settings restored.

    Only the first signal counts: a closed session sends several, which would interrupt the clean-up. An ignored signal
    stays ignored (`nohup`).
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: handler for n in numbers if (handler := signal.getsignal(n)) is not signal.SIG_IGN}

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        for number in before:
            signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(record: Record, plan: Schedule) -> str:
    left, header = record.remaining(plan), record.header
    expected = estimate(left, header.conditions, header.prices)
    money = ""
    if expected.cost is not None and header.prices is not None:
        money = f" and {expected.cost:.4f} {header.prices.currency}"
    return (
        f"{len(left)} of {len(plan.rounds())} measurements remain: about {format_duration(expected.seconds)}, "
        f"{expected.agbs:.0f} AGBs{money} for caches"
    )


def _conclude(record: Record, stage: str, profile: Path) -> None:
    from elastio_calibration import study  # noqa: PLC0415  needs the extra
    from elastio_calibration.profile import save  # noqa: PLC0415

    found = study.study(record)
    if stage in ("all", "study"):
        click.echo(study.study_text(found))
    if stage in ("all", "solve"):
        for pattern in dict.fromkeys(p.first.pattern for p in found.points):
            made = [m for m in record.measurements() if m.pattern == pattern]
            click.echo(f"{pattern}: {study.solution_text(study.solve(made))}")
    if stage in ("all", "format"):
        save(study.make_profile(record), profile)
        click.echo(f"{profile} is written: use it with `elastio predict` and `elastio plan`")
