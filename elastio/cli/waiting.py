"""The options of commands that may wait for what they asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def wait_options(default_s: float) -> Callable[[F], F]:
    """Adds `--wait` and `--timeout`: the command gets one parameter `wait_s`, None when it shall not wait."""

    def add(command: F) -> F:
        timeout = click.option(
            "--timeout",
            "wait_s",
            metavar="SECONDS",
            type=click.FloatRange(min=0),
            callback=_bound(default_s),
            help=f"How long to wait  [default: {default_s:g}]",
        )
        wait = click.option(
            "--wait", is_flag=True, is_eager=True, expose_value=False, callback=_note, help="Wait until it is done."
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
            raise click.UsageError("--timeout says how long to --wait: give both", ctx)
        return None

    return bound
