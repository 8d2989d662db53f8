"""Options that several commands share, and their conversion into the values of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from elastio_calibration.application import Application, from_values, read_file
from elastio_calibration.errors import CalibrationError
from elastio_calibration.fio import PATTERNS
from elastio_calibration.schedule import MOST_GB, WRITE, size_bytes
from elastio_cli.options import ABOVE_0, AT_LEAST_0

if TYPE_CHECKING:
    from elastio_calibration.predict import Predictor

F = TypeVar("F", bound=Callable[..., Any])
FILE: click.Path = click.Path(path_type=Path, dir_okay=False)
EXTRA = ("jsonschema", "matplotlib", "numpy", "scipy")


def require_extra() -> None:
    """Raises CalibrationError where a library of the extra is not installed."""
    for name in EXTRA:
        try:
            import_module(name)
        except ImportError as error:
            raise CalibrationError(
                f"this needs {name}, which is not installed: install the extra `calibration`, in a checkout with "
                "pip install '.[calibration]'"
            ) from error


class Sizes(click.ParamType):  # type: ignore[type-arg]  # before 8.4 it is no generic class
    """Sizes in GB, as `3,4,6`."""

    name = "GB,GB,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        try:
            sizes = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of sizes in GB, such as 3,4,6", param, ctx)
        if not all(0 < size <= MOST_GB for size in sizes):
            self.fail(f"{value!r} has a size that is not between 0 and {MOST_GB:g}", param, ctx)
        return sizes


def _adding(*options: Callable[[F], F]) -> Callable[[F], F]:
    """A decorator that gives a command these options, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


# The options that describe an application; `application_of` reads their values.
application_options: Callable[[F], F] = _adding(
    click.option("--application", "file", type=FILE, help="TOML file with the application."),
    click.option("--learn-ledger", type=FILE, help="Ledger with a benchmark run."),
    click.option("--learn-trace", type=FILE, help="CSV file with the throughput of a run."),
    click.option("--device", default="", help="UUID of the device in a ledger or trace with several."),
    click.option("--vms", type=click.IntRange(min=1), help="Number of VMs (n)."),
    click.option("--iterations", type=click.IntRange(min=1), help="Number of iterations (I)."),
    click.option("--iteration-s", type=AT_LEAST_0, help="Seconds of computing per iteration (It)."),
    click.option("--checkpoints", type=click.IntRange(min=1), help="Number of checkpoints (K)."),
    click.option("--checkpoint-gb", type=ABOVE_0, help="Size of a checkpoint per VM (Sc)."),
    click.option("--initial-gb", type=AT_LEAST_0, help="Size of the initial dump per VM (Si)."),
)
PROFILES = "Profile written by `elastio calibrate`; repeatable."
# Several profiles are merged or compared.
profile_options: Callable[[F], F] = _adding(
    click.option("--profile", "profiles", multiple=True, required=True, type=FILE, help=PROFILES),
    click.option("--backing-gb", type=ABOVE_0, help="Size of the backing volume (N)  [default: as calibrated]"),
    click.option(
        "--pattern", type=click.Choice(PATTERNS), default=WRITE, show_default=True, help="Pattern of the dumps."
    ),
)


APPLICATION_KEYS = ("vms", "iterations", "iteration_s", "checkpoints", "checkpoint_gb", "initial_gb")


def application_of(values: dict[str, Any]) -> Application:
    """Options override a ledger or trace, which override the file. Raises ElastioError."""
    from elastio_calibration.learn import from_ledger, from_trace  # noqa: PLC0415  rarely used

    described: dict[str, Any] = {}
    device = values.get("device", "")
    if device and not (values.get("learn_ledger") or values.get("learn_trace")):
        raise click.UsageError("--device needs --learn-ledger or --learn-trace")
    if values.get("file"):
        described.update(read_file(values["file"]))
    if values.get("learn_ledger"):
        described.update(from_ledger(values["learn_ledger"], device))
    if values.get("learn_trace"):
        described.update(from_trace(values["learn_trace"], device))
    described.update({key: values[key] for key in APPLICATION_KEYS if values.get(key) is not None})
    return from_values(described)


def gb(size_gb: float | None) -> int | None:
    """Bytes from GB. Raises CalibrationError."""
    return None if size_gb is None else size_bytes(size_gb)


def predictors(paths: tuple[Path, ...], backing_gb: float | None, pattern: str, *, one: bool) -> tuple[Predictor, ...]:
    """One predictor per bandwidth of the cache; profiles of the same conditions are merged.

    `one`: refuse profiles that differ in any condition. Raises CalibrationError.
    """
    from elastio_calibration.predict import Predictor  # noqa: PLC0415  needs the extra
    from elastio_calibration.profile import load, merge, require_comparable  # noqa: PLC0415

    loaded, size = [load(path) for path in paths], gb(backing_gb)
    if one:
        return (Predictor(merge(loaded, size), size, pattern),)
    groups: dict[float, list[Any]] = {}
    for profile in loaded:
        groups.setdefault(profile.conditions.cache_mb_s, []).append(profile)
    merged = [merge(group, size) for group in groups.values()]
    _require_same_conditions([m.conditions for m in merged])
    require_comparable(merged, size)
    return tuple(Predictor(profile, size, pattern) for profile in merged)


def _require_same_conditions(conditions: list[Any]) -> None:
    """Raises CalibrationError where anything but the bandwidth of the cache differs."""
    for other in conditions[1:]:
        differences = [d for d in conditions[0].differences(other) if not d.startswith("cache mb s")]
        if differences:
            raise CalibrationError(f"profiles of different conditions cannot be compared: {', '.join(differences)}")


def emit(
    values: Mapping[str, Any],
    document: Mapping[str, Any],
    rows: Sequence[dict[str, Any]],
    text: str,
    aside: Iterable[str],
) -> None:
    """Print the document with --json, the rows with --csv, else the text; what is `aside` goes to standard error."""
    from elastio_calibration import render  # noqa: PLC0415  needs the extra

    if values["as_json"]:
        click.echo(render.to_json(document))
        return
    click.echo(render.to_csv(rows) if values["as_csv"] else f"{text}\n", nl=False)
    for line in aside:
        click.echo(line, err=True)
