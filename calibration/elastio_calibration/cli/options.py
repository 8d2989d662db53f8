"""Options that several verbs share, and how values of the command line become those of the model."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from elastio.cli.numbers import ABOVE_0, AT_LEAST_0
from elastio_calibration.application import Application, from_values, read_file
from elastio_calibration.errors import CalibrationError
from elastio_calibration.fio import PATTERNS
from elastio_calibration.schedule import MOST_GB, WRITE, size_bytes

if TYPE_CHECKING:
    from elastio_calibration.predict import Predictor

F = TypeVar("F", bound=Callable[..., Any])
EXTRA = ("jsonschema", "matplotlib", "numpy", "scipy")


def require_extra() -> None:
    """Raises CalibrationError saying what to install."""
    for name in EXTRA:
        try:
            import_module(name)
        except ImportError as error:
            raise CalibrationError(
                f"this needs {name}, which is not installed: pip install 'elastio[calibration]'"
            ) from error


class Sizes(click.ParamType[tuple[float, ...]]):
    """`3,4,6` in GB."""

    name = "GB,GB,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        try:
            sizes = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of sizes in GB, as 3,4,6", param, ctx)
        if not all(0 < size <= MOST_GB for size in sizes):
            self.fail(f"{value!r} holds a size that is not above 0 and at most {MOST_GB:g}", param, ctx)
        return sizes


def application_options(command: F) -> F:
    """--vms ... --application FILE ...; the command gets them as one dictionary `described`."""
    for option in reversed(
        (
            click.option("--application", "file", type=click.Path(path_type=Path, dir_okay=False), help="TOML file."),
            click.option("--learn-ledger", type=click.Path(path_type=Path, dir_okay=False), help="From a benchmark."),
            click.option("--learn-trace", type=click.Path(path_type=Path, dir_okay=False), help="CSV of throughput."),
            click.option("--device", default="", help="UUID, where what is learned from holds several."),
            click.option("--vms", type=click.IntRange(min=1), help="n"),
            click.option("--iterations", type=click.IntRange(min=1), help="I"),
            click.option("--iteration-s", type=AT_LEAST_0, help="It, seconds of computing per iteration."),
            click.option("--checkpoints", type=click.IntRange(min=1), help="K"),
            click.option("--checkpoint-gb", type=ABOVE_0, help="Sc, per VM."),
            click.option("--initial-gb", type=AT_LEAST_0, help="Si, per VM."),
        )
    ):
        command = option(command)
    return command


def profile_options(command: F) -> F:
    """--profile FILE (several are merged, or compared), --backing-gb and --pattern."""
    for option in reversed(
        (
            click.option(
                "--profile",
                "profiles",
                multiple=True,
                required=True,
                type=click.Path(path_type=Path, dir_okay=False),
                help="Made by `elastio calibrate`; may be given several times.",
            ),
            click.option("--backing-gb", type=ABOVE_0, help="N  [default: as calibrated]"),
            click.option("--pattern", type=click.Choice(PATTERNS), default=WRITE, show_default=True),
        )
    ):
        command = option(command)
    return command


APPLICATION_KEYS = ("vms", "iterations", "iteration_s", "checkpoints", "checkpoint_gb", "initial_gb")


def application_of(values: dict[str, Any]) -> Application:
    """File, then what was learned, then single options: the later one wins. Raises ElastioError."""
    from elastio_calibration.learn import from_ledger, from_trace  # noqa: PLC0415  rarely wanted

    described: dict[str, Any] = {}
    device = values.get("device", "")
    if device and not (values.get("learn_ledger") or values.get("learn_trace")):
        raise click.UsageError("--device is of --learn-ledger and --learn-trace")
    if values.get("file"):
        described.update(read_file(values["file"]))
    if values.get("learn_ledger"):
        described.update(from_ledger(values["learn_ledger"], device))
    if values.get("learn_trace"):
        described.update(from_trace(values["learn_trace"], device))
    described.update({key: values[key] for key in APPLICATION_KEYS if values.get(key) is not None})
    return from_values(described)


def gb(size_gb: float | None) -> int | None:
    """In bytes. Raises CalibrationError."""
    return None if size_gb is None else size_bytes(size_gb)


def predictors(paths: tuple[Path, ...], backing_gb: float | None, pattern: str, *, one: bool) -> tuple[Predictor, ...]:
    """One predictor per bandwidth of the cache; profiles that share every condition are merged.

    `one`: profiles that differ are refused. Raises CalibrationError.
    """
    from elastio_calibration.predict import Predictor  # noqa: PLC0415  needs the extra
    from elastio_calibration.profile import load, merge, require_one_question  # noqa: PLC0415

    loaded, size = [load(path) for path in paths], gb(backing_gb)
    if one:
        return (Predictor(merge(loaded, size), size, pattern),)
    groups: dict[float, list[Any]] = {}
    for profile in loaded:
        groups.setdefault(profile.conditions.cache_mb_s, []).append(profile)
    merged = [merge(group, size) for group in groups.values()]
    _require_comparable([m.conditions for m in merged])
    require_one_question(merged, size)
    return tuple(Predictor(profile, size, pattern) for profile in merged)


def _require_comparable(conditions: list[Any]) -> None:
    """Only the bandwidth of the cache may differ: everything else would compare apples with pears."""
    for other in conditions[1:]:
        differences = [d for d in conditions[0].differences(other) if not d.startswith("cache mb s")]
        if differences:
            raise CalibrationError(f"profiles of different conditions cannot be compared: {', '.join(differences)}")
