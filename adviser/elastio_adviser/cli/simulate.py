"""`elastio simulate`: what the agent would do for an application and what it would cost, without a cloud."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from elastio import registry
from elastio.errors import ConfigError, ElastioError
from elastio.units import GB, GIB, counted, format_size
from elastio_adviser import traces, whatif
from elastio_adviser.cli import verdict
from elastio_adviser.cli.verdict import DAY, MB_S, SIZE
from elastio_adviser.doubts import doubts
from elastio_adviser.experiment import EXPERIMENTS, BoostResult, Comparison, Experiment, Setup, compare
from elastio_cli.options import Finite
from elastio_cli.out_file import require_directory
from elastio_cli.terminal import busy
from elastio_sim.faults import FaultPlan


def _faults(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    try:
        FaultPlan.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def _policies(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """`NAME` or `NAME:key=value,key=value`."""
    found: dict[str, dict[str, float]] = {}
    for value in values:
        name, _, rest = value.partition(":")
        if name in found:
            raise click.BadParameter(f"{name} is given twice: give each policy another name")
        try:
            pairs = [pair.split("=") for pair in rest.split(",") if pair]
            found[name] = {key.strip(): _finite(number) for key, number in pairs}
        except ValueError:
            raise click.BadParameter(f"{value!r}: give it as NAME:key=number,key=number") from None
        if len(found[name]) < len(pairs):
            raise click.BadParameter(f"{value!r} names a setting twice")
        unknown = sorted(set(found[name]) - set(whatif.KEYS))
        if unknown:
            raise click.BadParameter(
                f"{unknown[0]} is not a setting of a policy; the settings are {', '.join(whatif.KEYS)}"
            )
    return found or {"adaptive": {}}


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


ONLY_EXPERIMENT = {"experiment", "faults"}
ONLY_TRACE = verdict.PRICE_NAMES | {"form", "device", "interval_s", "saturated_mb_s", "policies", "png"}
# Of the published experiments.
BACKING_MB_S, CACHE_MB_S = 33.0, 128.0


@click.command(
    short_help="Simulate the agent, and compare it with static volumes.", context_settings={"show_default": True}
)
@click.option("--experiment", type=click.Choice(list(EXPERIMENTS)), default="demo", help="Application to run.")
@click.option(
    "--trace", type=click.Path(path_type=Path, dir_okay=False), help="Trace to replay instead of an experiment."
)
@click.option(
    "--format", "form", type=click.Choice(["auto", *traces.FORMATS]), default="auto", help="Format of the trace."
)
@click.option("--device", default="", show_default=False, help="Device in the trace; required for iostat.")
@click.option(
    "--interval",
    "interval_s",
    type=Finite(min=0.1, max=86400),
    help="Interval of iostat, in seconds  [default: as its times say (-t), else 1]",
)
@click.option(
    "--saturated",
    "saturated_mb_s",
    type=MB_S,
    help="Bandwidth limit of the recorded device, in MB/s: more was wanted where the trace reaches it.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    callback=_policies,
    help="Policy to compare, such as NAME:trigger_delay_s=5,headroom=1.2; repeatable.",
)
@verdict.add_options(verdict.PRICE_OPTIONS)
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), help="Draw the trace's runs here.")
@click.option(
    "--backing-mb-s",
    type=MB_S,
    help="Bandwidth of the slow volume  [default: 33; for a trace what its tariff includes]",
)
@click.option(
    "--cache-mb-s",
    type=MB_S,
    help="Bandwidth of the cache  [default: 128; for a trace 4 times the slow volume's]",
)
@click.option("--size-gib", type=SIZE, default=46.566, help="Size of the slow volume.")
@click.option("--initial-gib", type=SIZE, default=10.0, help="Size of the first cache.")
@click.option("--inactivity-delay", "delay_s", type=DAY, default=30.0, help="Value of policy.inactivity_delay_s.")
@click.option("--seed", type=int, default=0, help="Seed of the random delays.")
@click.option(
    "--faults", default="nothing", callback=_faults, help="Faults to inject, such as create#1=throttle @90=vanish."
)
@click.option("--json", "as_json", is_flag=True, help="Print the results and the timeline as one JSON document.")
@click.pass_context
def simulate(ctx: click.Context, /, **options: Any) -> None:
    """Run the agent on a simulated kernel and cloud, and compare it with volumes that never change.

    With --trace, a recorded load is replayed under one or more policies. The last line says whether the agent pays off,
    in money a month and minutes of waiting a day.
    """
    _refuse_unused(ctx, options["trace"] is not None)
    require_directory(options["png"])
    try:
        if options["trace"] is not None:
            _trace(options)
            return
        experiment = _experiment(options)
        whatif.require_provisioned(experiment.policy(""))
        with busy("simulating"):
            found = compare(experiment)
    except ConfigError as error:
        raise click.UsageError(f"the agent does not accept these settings: {error}") from error
    except TimeoutError as error:
        raise ElastioError(f"the simulated run did not end: {error}") from error
    click.echo(json.dumps(asdict(found), indent=2) if options["as_json"] else _text(found))


def _refuse_unused(ctx: click.Context, is_trace: bool) -> None:
    """Raises UsageError for an option that would be ignored."""
    unused = ONLY_EXPERIMENT if is_trace else ONLY_TRACE
    for param in ctx.command.params:
        if param.name in unused and ctx.get_parameter_source(param.name) is not ParameterSource.DEFAULT:
            raise click.UsageError(
                f"{param.opts[0]} is for {'experiments, not for a trace' if is_trace else '--trace'}"
            )


def _experiment(options: Mapping[str, Any]) -> Experiment:
    return Experiment(
        EXPERIMENTS[options["experiment"]],
        options["backing_mb_s"] or BACKING_MB_S,
        options["cache_mb_s"] or CACHE_MB_S,
        int(options["size_gib"] * GIB),
        int(options["initial_gib"] * GIB),
        options["delay_s"],
        options["seed"],
        options["faults"],
    )


# --- a trace -----------------------------------------------------------------------------------------------


def _trace(options: Mapping[str, Any]) -> None:
    with busy("reading the trace"):
        trace = traces.read(options["trace"], options["form"], options["device"], options["interval_s"])
    rates = trace.rates
    wanted, recorded_s = verdict.wanted_of(rates, options["saturated_mb_s"])
    asked = verdict.question(
        wanted,
        recorded_s,
        int(options["size_gib"] * GIB),
        options,
        policies=options["policies"],
        with_timeline=options["as_json"] or options["png"] is not None,
    )
    verdict.announce(asked)
    with busy("replaying the trace"):
        found = whatif.answer(asked)
    if options["png"] is not None:
        _draw(found, options["png"])
    if options["as_json"]:
        click.echo(json.dumps({**asdict(found), "said": trace.said}, indent=2))
        return
    lines = [*verdict.heading(rates, asked), "", *verdict.table(found)]
    for each in found.policies:
        lines += ["", f"{each.name}:", _BOOST_HEAD, *(_boost(boost) for boost in each.phases)]
    unknown = (*trace.said, *doubts(rates, asked, found, options["saturated_mb_s"]))
    click.echo("\n".join([*lines, *verdict.ending(asked, found, unknown)]))


def _draw(found: whatif.Answer, path: Path) -> None:
    """Raises ElastioError where no distribution that draws is installed: the agent itself has no library for it."""
    try:
        draw = registry.load(registry.installed(registry.PLOTS)["timeline"])
    except (KeyError, ElastioError) as error:
        text = "--png needs a plotting library: install the extra `calibration`, in a checkout with "
        raise ElastioError(f"{text}pip install '.[calibration]'") from error
    runs = {p.name: [(m.at_s, m.adaptive_mb_s, m.cache_bytes / GB) for m in p.timeline] for p in found.policies}
    draw(runs, "the trace under each policy", path)


# --- an experiment -----------------------------------------------------------------------------------------

_BOOST_HEAD = f"{'boost at':>10} {'size':>10} {'attached':>10} {'held':>8} {'peak dirty':>12} {'cost':>14}"


def _text(found: Comparison) -> str:
    lines = [f"{'':12} {'completion':>12} {'':>8} {'cost':>14}"]
    lines += [_setup(setup, found) for setup in (found.slow, found.fast, found.adaptive)]
    lines += ["", "Percentages: completion relative to static-fast, cost relative to static-slow."]
    lines.append(f"The caches cost {found.cache_agbs:.0f} AGBs of the total.")
    lines += ["", _BOOST_HEAD]
    lines += [_boost(boost) for boost in found.phases]
    if found.lost_blocks or found.volumes_left:
        lines += ["", f"{counted(found.lost_blocks, 'block')} lost, {counted(found.volumes_left, 'volume')} left."]
    return "\n".join(lines)


def _setup(setup: Setup, found: Comparison) -> str:
    slower = setup.completion_s / found.fast.completion_s - 1
    dearer = setup.agbs / found.slow.agbs - 1
    return f"{setup.name:12} {setup.completion_s:10.1f} s {slower:+8.1%} {setup.agbs:9.0f} AGBs {dearer:+8.1%}"


def _boost(boost: BoostResult) -> str:
    failure = f"  {boost.failure}" if boost.failure else ""
    attached = "never" if boost.boosted_after_s is None else f"{boost.boosted_after_s:.1f} s"
    return (
        f"{boost.started_s:8.0f} s {format_size(boost.size_bytes):>10} {attached:>10} {boost.held_s:6.0f} s "
        f"{format_size(boost.peak_dirty_bytes):>12} {boost.agbs:9.0f} AGBs{failure}"
    )
