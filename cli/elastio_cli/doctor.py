"""`elastio doctor`: checks what the agent needs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from elastio.config.schema import Config
from elastio.control.exit_codes import Exit
from elastio.errors import ConfigError, ElastioError
from elastio_cli.app import App
from elastio_cli.terminal import busy
from elastio_setup import agent_checks, device_checks, kernel_checks, share_checks
from elastio_setup.check_result import CheckResult, Machine, Verdict, fail, ok, warn
from elastio_setup.subprocess_timeout import call_with_timeout

KERNEL_S = 15.0


@click.command(short_help="Check kernel, tools, configuration, device and cloud.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as a JSON list.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check kernel, tools, configuration, backing device, cloud and agent. Changes nothing.

    The exit code is 1 if a check failed; warnings do not count.
    """
    app: App = ctx.obj
    found = []
    for result in examine(app):
        found.append(result)
        if not as_json:
            show(result)
    if as_json:
        click.echo(json.dumps([f.to_json() for f in found], indent=2))
    else:
        counts = ", ".join(f"{sum(f.verdict is v for f in found)} {v}" for v in Verdict)
        click.echo(counts)
    ctx.exit(Exit.FAILED if any(f.verdict is Verdict.FAIL for f in found) else Exit.OK)


def show(result: CheckResult) -> None:
    click.echo(f"{result.verdict:<5}{result.name}: {result.sentence}")
    if result.remedy:
        click.echo(f"     -> {result.remedy}")


def examine(app: App) -> Iterator[CheckResult]:
    """Every result, in the order in which an operator would fix the causes."""
    machine = Machine(app.sysfs(), app.run)
    yield kernel_checks.kernel(machine)
    yield kernel_checks.module(machine)
    yield kernel_checks.cutoffs(machine)
    yield kernel_checks.memory(machine)
    yield kernel_checks.tools(machine)
    yield kernel_checks.throttling(machine)
    yield kernel_checks.rules(machine)
    yield kernel_checks.units(machine)
    yield from device_checks.adopted(machine)
    yield agent_checks.clock(machine)
    try:
        config = app.config()
    except ConfigError as error:
        yield fail("configuration", str(error), "correct it until `elastio config check` passes", error.code)
        yield agent_checks.daemon(app.client())
        return
    doubtful = config.doubts
    for doubt in doubtful:
        yield warn("configuration", doubt, "correct the bandwidths, and run `elastio config check`", "doubtful")
    if not doubtful:
        yield ok("configuration", f"{app.config_path} is valid")
    yield from _of_the_device(machine, config)
    yield from agent_checks.metadata(machine, config)
    with busy("asking the cloud"):
        found = list(agent_checks.cloud(config))
    yield from found
    yield agent_checks.daemon(app.client())
    yield from agent_checks.credits(app.client())
    yield from share_checks.neighbours(app.config_path, config)


def _of_the_device(machine: Machine, config: Config) -> list[CheckResult]:
    """In a child process, because bcache may hang."""

    def scan() -> list[CheckResult]:
        found = [*device_checks.device(machine, config), agent_checks.state_place(machine, config)]
        return [*found, *agent_checks.guard(machine, config), *share_checks.check_shares(machine, config)]

    try:
        return call_with_timeout(scan, KERNEL_S)
    except ElastioError as error:
        return [fail("backing device", str(error), "see `dmesg`; if bcache hangs, only a reboot helps", error.code)]
