"""Options in seconds, and the pair `--wait` and `--timeout`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def seconds_option(
    name: str, parameter: str, default_s: float, meaning: str, most_s: float | None = None
) -> Callable[[F], F]:
    """An option of at least 1 s, with its default in the help."""
    kind = click.FloatRange(1, most_s)
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
            type=click.FloatRange(min=0),
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
