"""`elastio status`: shows what the agent does now."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from elastio.config.paths import ADOPTED, AT_BOOT
from elastio.control import status as document
from elastio.control.check import Check, check, unanswered
from elastio.errors import ElastioError
from elastio.units import counted, format_duration, format_size
from elastio_cli.app import App

PHASES = {
    "idle": "no cache is attached",
    "attaching": "a cache volume is being bought and attached",
    "boosting": "phase 1: application I/O first",
    "flushing": "phase 2: flush first; at its end, writes bypass the cache",
    "detaching": "the cache volume is being released",
    "faulted": "an operator must decide",
}


@click.command(short_help="Show phase, load, cache, dirty data, spending and volumes.")
@click.option("--json", "as_json", is_flag=True, help="Print the status as one JSON document.")
@click.option("--check", "as_check", is_flag=True, help="Print one line; the exit code says if something is wrong.")
@click.pass_context
def status(ctx: click.Context, as_json: bool, as_check: bool) -> None:
    """Show phase, load, cache, dirty data, spending and what prevents boosts."""
    app: App = ctx.obj
    if as_check:
        if as_json:
            raise click.UsageError("give --json or --check, not both")
        found = _check(app)
        click.echo(found.line)
        ctx.exit(found.exit)
    if not as_json:
        _show_adopted(app)
    seen = app.client().status()
    if as_json:
        click.echo(json.dumps(seen.to_json(), indent=2))
        return
    for name, text in rows(seen):
        click.echo(f"{name:<14}{text}")


def _show_adopted(app: App) -> None:
    """Adopted volumes have no agent: they are shown also where none answers."""
    if app.is_simulated or not any(map(app.sysfs().exists, (ADOPTED, AT_BOOT))):
        return
    from elastio_setup.check_result import Machine  # noqa: PLC0415
    from elastio_setup.device_checks import adopted  # noqa: PLC0415  `status` should not wait for all of set-up

    for found in adopted(Machine(app.sysfs(), app.run)):
        click.echo(f"{'adopted':<14}{found.sentence}")


def _check(app: App) -> Check:
    try:
        return check(app.client().status())
    except ElastioError as error:
        return unanswered(error)


def rows(seen: document.Status) -> list[tuple[str, str]]:
    """Name and text of each line to print."""
    meaning = PHASES.get(seen.phase, "unknown to this release")
    lines = [
        ("phase", f"{seen.phase} ({meaning})" if seen.recovered else "starting (the kernel has not been read yet)")
    ]
    noted = (
        ("waiting for", seen.waiting_for),
        ("paused", "no boost starts automatically until `elastio resume`" if seen.paused else ""),
        ("restraint", seen.restraint),
        ("capped", seen.capped),
        ("held", "" if seen.hold is None else _inhibition(seen.hold)),
        ("expected", _expected(seen.expected[0]) if seen.expected else ""),
        ("fault", seen.fault),
    )
    lines += [(name, text) for name, text in noted if text]
    lines += [("utilization", _utilization(seen)), ("throughput", _throughput(seen)), *_device(seen)]
    if seen.cycle is not None:
        lines += _cycle(seen.cycle)
    learned = seen.learned_size_bytes
    lines.append(("learned size", "none yet" if learned is None else format_size(learned)))
    if seen.learned_bandwidth_mb_s is not None:
        lines.append(("next cache", f"{seen.learned_bandwidth_mb_s:.0f} MB/s, learned"))
    lines += [("today", _spend(seen)), *_month(seen), *_others(seen), ("volumes", _volumes(seen))]
    if seen.cloud_error:
        lines.append(("cloud", seen.cloud_error))
    if seen.last_error and seen.last_error != seen.cloud_error:
        lines.append(("last error", _since(seen) + seen.last_error))
    lines.append(("agent", _agent(seen)))
    return lines


def _since(seen: document.Status) -> str:
    """Since when the last error lasts."""
    wall = seen.last_error_wall
    return "" if wall is None else datetime.fromtimestamp(wall, UTC).strftime("since %Y-%m-%d %H:%M:%SZ: ")


def _inhibition(hold: document.InhibitionPart) -> str:
    aim = "consistent" if hold.safe else "flushing" if hold.flush else "the cache stays attached"
    return f"{hold.reason}, no boost starts; {aim}; ends in {format_duration(hold.left_s)}"


def _expected(burst: document.ExpectedPart) -> str:
    of = f" of {format_size(burst.size_bytes)}" if burst.size_bytes else ""
    return f"a burst{of} in {format_duration(burst.in_s)}"


def _utilization(seen: document.Status) -> str:
    load = seen.load
    reserved = f"{round(load.backing_bandwidth_mb_s, 1):g} MB/s"
    return f"{load.utilization * 100:.0f} % of {reserved} (boost at {load.threshold * 100:g} %)"


def _throughput(seen: document.Status) -> str:
    counted = seen.load.counted_mb_s
    counts = "" if counted is None else f" ({counted:.1f} MB/s of it by cgroups that may cause a boost)"
    return f"read {seen.load.read_mb_s:.1f} MB/s, write {seen.load.write_mb_s:.1f} MB/s{counts}"


def _device(seen: document.Status) -> list[tuple[str, str]]:
    credits = [] if seen.credits is None else [("credits", credits_text(seen.credits))]
    return [("backing", _backing(seen)), *credits, *_shares(seen)]


def _shares(seen: document.Status) -> list[tuple[str, str]]:
    """Only while the device is shared."""
    shared = seen.capacity.shared_mb_s if seen.capacity else None
    return [("shares", f"{shared:.1f} MB/s by the weights of cgroups")] if shared else []


def _backing(seen: document.Status) -> str:
    backing = seen.backing
    if backing is None:
        return "not registered with bcache, or not read yet"
    running = "" if backing.running else "not running, "
    return (
        f"{running}{format_size(backing.size_bytes)}, {backing.state}, mode {backing.cache_mode}, "
        f"{format_size(backing.dirty_bytes)} dirty"
    )


def credits_text(credits: document.CreditsPart) -> str:
    """The balance of the backing volume, and what it allows a flush."""
    limit = credits.flush_limit_mb_s
    limited = "" if limit is None else f", flush limited to {limit:.1f} MB/s"
    return (
        f"{credits.share:.0%} of {format_size(credits.capacity_bytes)} by model, base {credits.base_mb_s:.1f} MB/s, "
        f"burst {credits.burst_mb_s:.1f} MB/s{limited}"
    )


def _cycle(cycle: document.CyclePart) -> list[tuple[str, str]]:
    volume = f"volume {cycle.volume_id}" if cycle.volume_id else "no volume yet"
    serial = f" (serial {cycle.serial})" if cycle.serial else ""
    bought = f"{format_size(cycle.size_bytes)} at {round(cycle.bandwidth_mb_s, 1):g} MB/s"
    if cycle.price_per_hour is not None:
        bought += f", {cycle.price_per_hour:.4f} {cycle.currency} an hour"
    boosted = cycle.boosted_after_s
    attached = "not attached yet" if boosted is None else f"attached after {format_duration(boosted)}"
    lines = [
        ("cache", f"{volume}{serial}, {bought}"),
        ("cycle", f"{format_duration(cycle.elapsed_s)} old, started by {cycle.trigger}, {attached}"),
        ("dirty peak", format_size(cycle.peak_dirty_bytes)),
    ]
    if cycle.choice:
        lines.append(("chosen", cycle.choice))
    if cycle.held_s is not None:
        lines.append(("unused", f"clean, held for {format_duration(cycle.held_s)}"))
    if cycle.flush_progress is not None:
        left = (1 - cycle.flush_progress) * cycle.flush_started_dirty_bytes
        lines.append(("flush", f"{cycle.flush_progress * 100:.0f} % done, {format_size(left)} left"))
    if cycle.failure:
        lines.append(("failure", cycle.failure))
    return lines


def _spend(seen: document.Status) -> str:
    spend = seen.spend
    known = () if spend.known else ("incomplete: the ledger cannot be read, see `journalctl -u elastiod`",)
    unpriced = (f"{spend.unpriced} without a price",) if spend.unpriced else ()
    return ", ".join((*_sums(spend, spend.currency), *unpriced, *known))


def _month(seen: document.Status) -> list[tuple[str, str]]:
    """The month, if a cap limits it."""
    month = seen.spend.month
    return [("this month", ", ".join(_sums(month, seen.spend.currency)))] if _is_limited(month) else []


def _is_limited(month: document.MonthPart) -> bool:
    return (month.max_boosts, month.max_agbs, month.max_cost) != (None, None, None)


def _others(seen: document.Status) -> list[tuple[str, str]]:
    """What other devices have spent and reserved under the shared caps, in the periods that are shown."""
    spend, others = seen.spend, seen.spend.others
    if others is None:
        return []
    if others.trouble:
        return [("others", f"what they have spent under the shared caps is not known: {others.trouble}")]
    lines = [("others today", f"{', '.join(_sums(others, spend.currency))}, spent or reserved under the shared caps")]
    if _is_limited(spend.month):
        lines.append(("others, month", ", ".join(_sums(others.month, spend.currency))))
    return lines


def _sums(spent: document.SpendPart | document.MonthPart | document.OthersPart, currency: str) -> tuple[str, str, str]:
    """Boosts, AGBs and cost, each with its cap. Amounts in several currencies have no sum."""
    boosts, agbs, most = (None, None, None) if isinstance(spent, document.OthersPart) else _caps_of(spent)
    cost = f"in {currency}" if " and " in currency else f"{spent.cost:.4f}{_cap(most)} {currency}".rstrip()
    begun = counted(spent.boosts, "boost") if boosts is None else f"{spent.boosts} of {counted(boosts, 'boost')}"
    return begun, f"{spent.agbs:.0f}{_cap(agbs)} AGBs", f"cost {cost}"


def _caps_of(spent: document.SpendPart | document.MonthPart) -> tuple[int | None, float | None, float | None]:
    return spent.max_boosts, spent.max_agbs, spent.max_cost


def _cap(most: float | None) -> str:
    return "" if most is None else f" of {most:g}"


def _volumes(seen: document.Status) -> str:
    if seen.owned is None:
        return "the cloud has not listed them yet"
    return ", ".join(_volume(v) for v in seen.owned) or "none"


def _volume(volume: document.VolumePart) -> str:
    kept = f" (kept: tagged {volume.tag})" if volume.kept else ""
    if volume.backing_uuid and not volume.kept:
        kept = f" (of backing device {volume.backing_uuid})"
    return f"{volume.id} {volume.state} {format_size(volume.size_bytes)}{kept}"


def _agent(seen: document.Status) -> str:
    agent = seen.agent
    where = ", ".join(filter(None, (agent.instance_id, agent.instance_type, agent.zone)))
    machine = f", on {where}" if where else ""
    kernel = "" if agent.host_responsive else "; the kernel does not answer"
    return f"{agent.version}, up {format_duration(agent.uptime_s)}{machine}{kernel}"
