"""The options and the text of a verdict in money: shared by `simulate --trace`, `observe` and `audit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from elastio.errors import ConfigError
from elastio.strategy.tariff import Tariff, agbs_tariff
from elastio.units import GB, GIB, MB, format_duration, format_size
from elastio_adviser import whatif
from elastio_adviser.comparison import Alternative, render_choices, render_money
from elastio_adviser.modification import ChangeRule
from elastio_adviser.rates import Rate
from elastio_adviser.replay import Demand, demands
from elastio_adviser.volume_types import VolumeType, shipped, volume_type
from elastio_cli.options import Finite
from elastio_sim.provider import FASTEST_MB_S

F = TypeVar("F", bound=Callable[..., Any])
MB_S = Finite(min=1, max=1e6)
SIZE = Finite(min=1, max=whatif.LARGEST_GIB)
PRICE = Finite(min=0, max=1e6)
DAY = Finite(min=0, max=86400)
# Beside a price that is given: USD for 1 GB and for 1 MB/s, an hour.
PER_GB_HOUR, PER_MB_S_HOUR = 0.00011, 0.00006
# Of a volume whose tariff includes no bandwidth; a cache is bought four times as fast.
BACKING_MB_S, FASTER = 33.0, 4.0
# The replay of a longer trace takes more than about three seconds, and is announced.
LONG_S = 6 * 3600.0
NAMES, KIND = ", ".join(shipped()), "NAME|FILE"
# Key of `click.Context.meta`: the texts of options that were turned into volume types.
GIVEN = "elastio.verdict.given"


def _kind(ctx: click.Context, param: click.Parameter, value: str | None) -> VolumeType | None:
    if value is None:
        return None
    ctx.meta.setdefault(GIVEN, {})[param.name] = value
    return _volume_type(value)


def _kinds(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[VolumeType, ...]:
    ctx.meta.setdefault(GIVEN, {})[param.name] = values
    found = tuple(_volume_type(value) for value in values)
    constant = next((kind.name for kind in found if kind.credits is None), None)
    if constant is not None:
        raise click.BadParameter(f"{constant} has no credits: --cold is for volumes with a base and a burst rate")
    return found


def _volume_type(value: str) -> VolumeType:
    try:
        return volume_type(value)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


PRICE_OPTIONS = (
    click.option(
        "--tariff", metavar=KIND, callback=_kind,
        help=f"Prices of the volume: {NAMES}, or a TOML file  [default: gp3]",
    ),
    click.option(
        "--fast-tariff", metavar=KIND, callback=_kind,
        help="Prices of caches and of a fast volume  [default: those of the volume]",
    ),
    click.option(
        "--cold", metavar=KIND, multiple=True, callback=_kinds,
        help="Volume type with credits to compare; repeatable  [default: st1 and sc1, with the tariff gp3]",
    ),
    click.option("--no-cold", is_flag=True, show_default=False, help="Compare no volume with credits."),
    click.option("--per-gb-hour", type=PRICE, help="Price of 1 GB for an hour, instead of a tariff."),
    click.option("--per-mb-s-hour", type=PRICE, help="Price of 1 MB/s for an hour, instead of a tariff."),
    click.option("--currency", help="Currency of these prices  [default: USD]"),
    click.option("--hour-value", type=PRICE, help="What an hour of waiting costs; without it, the answer is a list."),
    click.option(
        "--modify-changes", type=click.IntRange(0, 1000),
        help="Changes of a volume that the cloud allows; 0: none  [default: 4, or 0 with --fast-tariff]",
    ),
    click.option(
        "--modify-window-h", type=Finite(min=0, max=366 * 24), default=24.0, help="Hours in which it allows them."
    ),
    click.option(
        "--modify-gap-h", type=Finite(min=0, max=366 * 24), default=0.0,
        help="Hours until a change has completed and the next is allowed.",
    ),
)  # fmt: skip
VOLUME_OPTIONS = (
    click.option(
        "--backing-mb-s", type=MB_S, help="Bandwidth of the volume  [default: what its tariff includes, else 33]"
    ),
    click.option(
        "--cache-mb-s", type=MB_S, help="Bandwidth of a cache and of a fast volume  [default: 4 times the volume's]"
    ),
    click.option("--initial-gib", type=SIZE, default=10.0, help="Size of the first cache."),
    click.option(
        "--inactivity-delay", "delay_s", type=DAY, default=30.0, help="Value of policy.inactivity_delay_s."
    ),
)  # fmt: skip
VOLUME_NAMES = frozenset({"cache_mb_s", "initial_gib", "delay_s"})
PRICE_NAMES = frozenset({
    "tariff", "fast_tariff", "cold", "no_cold", "per_gb_hour", "per_mb_s_hour", "currency", "hour_value",
    "modify_changes", "modify_window_h", "modify_gap_h",
})  # fmt: skip


def add_options(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """Add these options to a command, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def question(
    wanted: Sequence[Demand],
    recorded_s: float,
    size_bytes: int,
    options: Mapping[str, Any],
    *,
    policies: Mapping[str, Mapping[str, float]] | None = None,
    replayed: bool = True,
    with_timeline: bool = False,
) -> whatif.Question:
    """What the options of a command ask. Raises UsageError for options that exclude each other."""
    volume = _priced(options)
    backing = backing_mb_s(options)
    fast = options["fast_tariff"] or volume
    changes = options["modify_changes"]
    rule = ChangeRule(
        (4 if fast == volume else 0) if changes is None else changes,
        options["modify_window_h"] * 3600,
        options["modify_gap_h"] * 3600,
    )
    return whatif.Question(
        wanted=tuple(wanted),
        recorded_s=recorded_s,
        backing_mb_s=backing,
        cache_mb_s=options["cache_mb_s"] or min(FASTER * backing, max(backing, FASTEST_MB_S - backing)),
        size_bytes=size_bytes,
        initial_bytes=int(options["initial_gib"] * GIB),
        inactivity_delay_s=options["delay_s"],
        policies=policies or {"adaptive": {}},
        volume=volume,
        fast=fast,
        cold=_cold(volume, options),
        change_rule=rule,
        hour_value=options["hour_value"],
        replayed=replayed,
        seed=options.get("seed", 0),
        with_timeline=with_timeline,
    )


def backing_mb_s(options: Mapping[str, Any]) -> float:
    """The bandwidth of the volume: as given, else what its tariff includes."""
    given: float | None = options["backing_mb_s"]
    return given or _priced(options).tariff.included_mb_s or BACKING_MB_S


def _priced(options: Mapping[str, Any]) -> VolumeType:
    per_gb, per_mb_s, currency = options["per_gb_hour"], options["per_mb_s_hour"], options["currency"]
    if per_gb is None and per_mb_s is None and currency is None:
        return options["tariff"] or volume_type("gp3")
    if options["tariff"] is not None:
        raise click.UsageError("give --tariff, or prices with --per-gb-hour, --per-mb-s-hour and --currency, not both")
    if per_gb == 0 and per_mb_s == 0:
        return VolumeType("agbs", agbs_tariff())
    per_gb, per_mb_s = (PER_GB_HOUR if per_gb is None else per_gb), (PER_MB_S_HOUR if per_mb_s is None else per_mb_s)
    tariff = Tariff(currency or "USD", per_gb * GIB / GB, per_mb_s, minimum_s=60.0, source="options")
    return VolumeType("given", tariff)


def _cold(volume: VolumeType, options: Mapping[str, Any]) -> tuple[VolumeType, ...]:
    if options["no_cold"]:
        if options["cold"]:
            raise click.UsageError("give --cold or --no-cold, not both")
        return ()
    if not options["cold"] and volume.name == "gp3" and volume == volume_type("gp3"):
        return volume_type("st1"), volume_type("sc1")
    found: tuple[VolumeType, ...] = options["cold"]
    return found


def wanted_of(rates: Sequence[Rate], saturated_mb_s: float | None) -> tuple[tuple[Demand, ...], float]:
    """What the application wanted, and the seconds of the recording."""
    return demands(rates, saturated_mb_s), sum(r.seconds for r in rates)


def given(ctx: click.Context) -> list[str]:
    """The options about volumes and prices that the user gave, as arguments of a command line."""
    found: list[str] = []
    texts = ctx.meta.get(GIVEN, {})
    for param in ctx.command.params:
        name = param.name or ""
        is_given = ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
        if name not in PRICE_NAMES | VOLUME_NAMES or not is_given:
            continue
        value = texts.get(name, ctx.params[name])
        if isinstance(value, bool):
            found.append(param.opts[0])
        else:
            values = value if isinstance(value, tuple) else (value,)
            found += [text for each in values for text in (param.opts[0], str(each))]
    return found


def announce(asked: whatif.Question) -> None:
    """Say on stderr that a replay takes long."""
    if LONG_S < asked.slow_s <= whatif.MOST_S:
        runs = f"{len(asked.policies)} {'policy' if len(asked.policies) == 1 else 'policies'}"
        click.echo(f"elastio: replaying {format_duration(asked.slow_s)} under {runs} takes a while", err=True)


# --- text ------------------------------------------------------------------------------------------------------


def heading(rates: Sequence[Rate], asked: whatif.Question) -> list[str]:
    """What was seen, and what is assumed."""
    written, read = (sum(moved) * MB / GB for moved in (
        [r.seconds * r.write_mb_s for r in rates], [r.seconds * r.read_mb_s for r in rates],
    ))  # fmt: skip
    peak = max(r.total_mb_s for r in rates)
    seen = f"{format_duration(sum(r.seconds for r in rates))}, {written:.1f} GB written, {read:.1f} GB read"
    size = format_size(max(asked.size_bytes, asked.volume.least_bytes))
    return [f"Seen: {seen}, at most {peak:.1f} MB/s.", f"Size: {size}.", *assumed(asked)]


def assumed(asked: whatif.Question) -> list[str]:
    """The volumes that are compared, and where their prices come from."""
    tariff, fast = asked.volume.tariff, f"{asked.fast.name}, {asked.cache_mb_s:.0f} MB/s"
    where = ", ".join(text for text in (tariff.region, tariff.date, tariff.source) if text) or "no source given"
    return [
        f"Volume: {asked.volume.name}, {asked.backing_mb_s:.0f} MB/s; fast: {fast}.",
        f"Prices: {where}.",
    ]


def table(found: whatif.Answer) -> list[str]:
    """A line for each way."""
    slow = found.static[0]
    lines = [
        f"{'':14} {'a month':>14} {'':>7} {'waiting':>14} {'completion':>12} {'AGBs':>11} {'boosts':>7} {'credits':>8}"
    ]
    for way in found.ways:
        boosts = str(len(way.phases)) if way.name in found.agents else "-"
        lines.append(
            f"{way.name:14} {render_money(way.per_month, found.currency):>14} {_dearer(way, slow):>7} "
            f"{_waiting(way):>14} {f'{way.completion_s:.1f} s':>12} {way.agbs:11.0f} "
            f"{boosts:>7} {'-' if way.least_credits is None else f'{way.least_credits:.0%}':>8}"
        )
    return lines


def _waiting(way: Alternative) -> str:
    return f"{way.waits_min_per_day:.1f} min/day" if way.waits_min_per_day < 24 * 60 else "too slow"


def _dearer(way: Alternative, slow: Alternative) -> str:
    return f"{way.per_month / slow.per_month - 1:+.0%}" if slow.per_month else "-"


def ending(asked: whatif.Question, found: whatif.Answer, unknown: Sequence[str]) -> list[str]:
    """The choices, what is not known, and the verdict as the last line."""
    lines = [
        "",
        "What is best depends on what an hour of waiting costs:",
        *render_choices(found.choices, found.currency),
    ]
    lines += [
        "",
        "Percentages compare the bill with static-slow. Waiting is time beyond that of a volume without limit.",
    ]
    if asked.change_rule.changes:
        lines.append("modify-volume assumes that every change is made in time.")
    if asked.cold:
        lines.append("Credits are the least that was left, as a share of a full bucket.")
    return [*lines, *unknown, "", found.verdict]
