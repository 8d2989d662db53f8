"""Types and callbacks of options: numbers, times and sizes, and the pair `--wait` and `--timeout`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from elastio.control.protocol import SIZE, VOLUME_ID
from elastio.units import GIB, KIB, MIB


class Finite(click.FloatRange):
    """A range without `inf` and `nan`, which click's comparisons accept."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


ABOVE_0 = Finite(min=0, min_open=True)
AT_LEAST_0 = Finite(min=0)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|)", re.ASCII)
_SIZE = re.compile(r"(\d{1,9}(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_BYTES = {"k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB, "": GIB}
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def duration(least_s: float, most_s: float) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """The callback of an option like `90s`, `10m`, `1.5h`, `2d` or `90`: seconds within the bounds; None: not given."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        match = _DURATION.fullmatch(value.strip())
        seconds = float(match[1]) * _UNITS[match[2]] if match else math.nan
        if not least_s <= seconds <= most_s:
            raise click.BadParameter(f"{value!r}: give a time from {least_s:g}s to {most_s:g}s, such as 90s, 10m or 2h")
        return seconds

    return read


def size(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """The callback of an option like `4G`, `512MiB` or `4`: bytes, in binary units as LVM's, GiB without one."""
    if value is None:
        return None
    match = _SIZE.fullmatch(value.strip())
    found = int(float(match[1]) * _BYTES[match[2].lower()]) if match else 0
    if found not in SIZE:  # the agent would refuse it, in words of the protocol
        most = SIZE[-1] // _BYTES["t"]
        raise click.BadParameter(f"{value!r}: give a size of at least a byte and at most {most}T, such as 512M or 4G")
    return found


def volume_id(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The callback of an option that names a volume, as the agent takes it."""
    if value is not None and not VOLUME_ID.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not the ID of a volume: give at most 128 letters, digits and . _ : -")
    return value


F = TypeVar("F", bound=Callable[..., Any])


def seconds_option(
    name: str, parameter: str, default_s: float, meaning: str, most_s: float | None = None
) -> Callable[[F], F]:
    """An option of at least 1 s, with its default in the help."""
    kind = Finite(1, most_s)
    return click.option(
        name, parameter, metavar="SECONDS", type=kind, default=default_s, show_default=True, help=meaning
    )


def wait_options(default_s: float) -> Callable[[F], F]:
    """Add `--wait` and `--timeout`. The command gets one parameter `wait_s`, None without `--wait`."""

    def add(command: F) -> F:
        timeout = click.option(
            "--timeout",
            "wait_s",
            metavar="SECONDS",
            type=AT_LEAST_0,
            callback=_bound(default_s),
            help=f"Time to wait with --wait  [default: {default_s:g}]",
        )
        wait = click.option(
            "--wait",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_note,
            help="Wait until the agent is done. The exit code is 6 if it takes too long.",
        )
        return wait(timeout(command))

    return add


def _note(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta["elastio.wait"] = value


def _bound(default_s: float) -> Callable[[click.Context, click.Parameter, float | None], float | None]:
    def bound(ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
        if ctx.meta.get("elastio.wait"):
            return default_s if value is None else value
        if value is not None:
            raise click.UsageError("--timeout needs --wait", ctx)
        return None

    return bound
