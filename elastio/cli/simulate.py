"""`elastio simulate`: what the agent would do for an application, and what it would cost, without any cloud."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from elastio.errors import ElastioError
from elastio.sim.experiment import EXPERIMENTS, Comparison, Experiment, IoPhase, Setup, compare
from elastio.sim.faults import FaultPlan
from elastio.units import GIB, format_size

POSITIVE = click.FloatRange(min=0, min_open=True)


def _story(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    try:
        FaultPlan.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


@click.command()
@click.option("--experiment", type=click.Choice(list(EXPERIMENTS)), default="demo", show_default=True)
@click.option("--backing-mb-s", type=POSITIVE, default=33.0, show_default=True, help="Bandwidth of the slow volume.")
@click.option("--cache-mb-s", type=POSITIVE, default=128.0, show_default=True, help="Bandwidth of the cache.")
@click.option("--size-gib", type=POSITIVE, default=46.566, show_default=True, help="Size of the slow volume.")
@click.option("--initial-gib", type=POSITIVE, default=10.0, show_default=True, help="Size of the first cache.")
@click.option("--inactivity-delay", "delay_s", type=click.FloatRange(min=0), default=30.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides every delay that is drawn.")
@click.option("--faults", default="nothing", callback=_story, help="What goes wrong, as create#1=throttle @90=vanish.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with the timeline.")
def simulate(
    experiment: str,
    backing_mb_s: float,
    cache_mb_s: float,
    size_gib: float,
    initial_gib: float,
    delay_s: float,
    seed: int,
    faults: str,
    as_json: bool,
) -> None:
    """Run the agent on a simulated kernel and cloud and compare it with volumes that never change."""
    wanted = Experiment(
        EXPERIMENTS[experiment],
        backing_mb_s,
        cache_mb_s,
        int(size_gib * GIB),
        int(initial_gib * GIB),
        delay_s,
        seed,
        faults,
    )
    try:
        found = compare(wanted)
    except TimeoutError as error:
        raise ElastioError(f"the simulated run did not end: {error}") from error
    click.echo(json.dumps(asdict(found), indent=2) if as_json else _text(found))


def _text(found: Comparison) -> str:
    lines = [f"{'':12} {'completion':>12} {'':>8} {'cost':>14}"]
    lines += [_setup(setup, found) for setup in (found.slow, found.fast, found.adaptive)]
    lines += ["", "Percentages: completion against static-fast, cost against static-slow."]
    lines.append(f"The caches cost {found.cache_agbs:.0f} AGBs of it.")
    lines += ["", f"{'phase at':>10} {'size':>10} {'attached':>10} {'held':>8} {'peak dirty':>12} {'cost':>14}"]
    lines += [_phase(phase) for phase in found.phases]
    if found.lost_blocks or found.volumes_left:
        lines += ["", f"{found.lost_blocks} blocks were lost, {found.volumes_left} volumes are left."]
    return "\n".join(lines)


def _setup(setup: Setup, found: Comparison) -> str:
    slower = setup.completion_s / found.fast.completion_s - 1
    dearer = setup.agbs / found.slow.agbs - 1
    return f"{setup.name:12} {setup.completion_s:10.1f} s {slower:+8.1%} {setup.agbs:9.0f} AGBs {dearer:+8.1%}"


def _phase(phase: IoPhase) -> str:
    failure = f"  {phase.failure}" if phase.failure else ""
    attached = "never" if phase.boosted_after_s is None else f"{phase.boosted_after_s:.1f} s"
    return (
        f"{phase.started_s:8.0f} s {format_size(phase.size_bytes):>10} {attached:>10} {phase.held_s:6.0f} s "
        f"{format_size(phase.peak_dirty_bytes):>12} {phase.agbs:9.0f} AGBs{failure}"
    )
