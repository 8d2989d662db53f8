"""`elastio audit`: the verdict of `simulate --trace` from files of monitoring systems, for many volumes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from elastio.errors import ConfigError
from elastio.units import GB, GIB, MB, format_duration
from elastio_adviser import metric_files, whatif
from elastio_adviser.cli import verdict
from elastio_adviser.comparison import Alternative, best, quick_enough, render_choices, render_money
from elastio_adviser.doubts import COARSE_S, REQUESTS, as_bursts, doubts, interval_s, saturation
from elastio_adviser.series import Recording
from elastio_cli.terminal import busy


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict of one volume. `as_bursts`: with each sample as one burst; None: the samples are fine enough."""

    volume: str
    seen_s: float
    interval_s: float
    peak_mb_s: float
    read_gb: float
    written_gb: float
    evenly: whatif.Answer
    as_bursts: whatif.Answer | None
    doubts: tuple[str, ...]


def _sizes(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """`VOLUME=GIB`."""
    found: dict[str, float] = {}
    for value in values:
        volume, _, size = value.rpartition("=")
        try:
            found[volume] = float(size)
        except ValueError:
            found[volume] = 0.0
        if not volume or not 1 <= found[volume] <= whatif.LARGEST_GIB:
            raise click.BadParameter(f"{value!r}: give it as VOLUME=GIB, such as vol-0123=500")
    return found


@click.command(
    short_help="Say from recorded metrics what would have been cheapest.", context_settings={"show_default": True}
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--size-gib", type=verdict.SIZE, help="Size of the volumes, which no file names.")
@click.option(
    "--size", "sizes", metavar="VOLUME=GIB", multiple=True, callback=_sizes, help="Size of one volume; repeatable."
)
@click.option(
    "--saturated",
    "saturated_mb_s",
    type=verdict.MB_S,
    help="Bandwidth limit that the volumes had  [default: that of the volume, where a sample reaches it]",
)
@verdict.add_options(verdict.VOLUME_OPTIONS)
@verdict.add_options(verdict.PRICE_OPTIONS)
@click.option("--details", is_flag=True, help="Print every way for every volume.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document.")
def audit(files: tuple[Path, ...], details: bool, as_json: bool, **options: Any) -> None:
    """Say for each volume in FILES what would have been cheapest: slow, fast, modified, the agent or cold backing.

    FILES are JSON of `aws cloudwatch get-metric-data` or `get-metric-statistics` (VolumeReadBytes, VolumeWriteBytes),
    of `sadf -j FILE -- -d`, or of Prometheus range queries of node_disk_read_bytes_total and
    node_disk_written_bytes_total. No cloud is asked.
    """
    with busy("reading the files"):
        reading = metric_files.read_all(files)
    moved = [each for each in reading.recordings if any(r.total_mb_s > 0 for r in each.rates)]
    _require_there(options["sizes"], [each.volume for each in reading.recordings])
    quiet = [each.volume for each in reading.recordings if each not in moved]
    asked = [(each, _question(each, options)) for each in moved]  # before the first is computed: all may be refused
    try:
        with busy("comparing"):
            found = [_finding(each, question, saturated, options) for each, (question, saturated) in asked]
    except ConfigError as error:
        raise click.UsageError(f"the agent does not accept these settings: {error}") from error
    if as_json:
        shown = {"volumes": [asdict(each) for each in found], "quiet": quiet, "said": reading.said}
        click.echo(json.dumps(shown, indent=2))
        return
    lines: list[str] = []
    for each, (recording, (question, _)) in zip(found, asked, strict=True):
        lines += [*(_details(each, recording, question) if details else _summary(each)), ""]
    if quiet:
        lines.append(f"Moved nothing: {', '.join(quiet)}.")
    lines += reading.said
    if asked and not details:
        question = asked[0][1][0]
        lines = [*verdict.assumed(question), "", *lines]
        lines += [REQUESTS] if question.cold else []
    click.echo("\n".join([*lines, *_totals(found, options["hour_value"])]).rstrip())


def _require_there(sizes: Mapping[str, float], volumes: Sequence[str]) -> None:
    unknown = [volume for volume in sizes if volume not in volumes]
    if unknown:
        raise click.UsageError(f"--size is for {unknown[0]}, which no file has; there are {', '.join(volumes)}")


def _question(recording: Recording, options: Mapping[str, Any]) -> tuple[whatif.Question, float | None]:
    gib = options["sizes"].get(recording.volume, options["size_gib"])
    if gib is None:
        raise click.UsageError(
            f"the size of {recording.volume} is in no file: give --size '{recording.volume}=GIB', or --size-gib for all"
        )
    backing = verdict.backing_mb_s(options)
    saturated = options["saturated_mb_s"] or saturation(recording.rates, backing)
    wanted, seen_s = verdict.wanted_of(recording.rates, saturated)
    return verdict.question(wanted, seen_s, int(gib * GIB), options, replayed=False), saturated


def _finding(
    recording: Recording, asked: whatif.Question, saturated: float | None, options: Mapping[str, Any]
) -> Finding:
    rates = recording.rates
    evenly = whatif.answer(asked)
    said = doubts(rates, asked, evenly, saturated)
    said += _missing(recording)
    bursts = None
    if interval_s(rates) > COARSE_S:
        limit = saturated or max(asked.backing_mb_s, *(r.total_mb_s for r in rates))
        wanted = as_bursts(rates, limit)
        bursts = whatif.answer(verdict.question(wanted, asked.period_s, asked.size_bytes, options, replayed=False))
    return Finding(
        recording.volume,
        asked.period_s,
        interval_s(rates),
        max(r.total_mb_s for r in rates),
        sum(r.read_mb_s * r.seconds for r in rates) * MB / GB,
        sum(r.write_mb_s * r.seconds for r in rates) * MB / GB,
        evenly,
        bursts,
        said,
    )


def _missing(recording: Recording) -> tuple[str, ...]:
    directions = ("read", recording.has_read), ("written", recording.has_written)
    said = tuple(f"No file has bytes {name}: they count as none." for name, has in directions if not has)
    if recording.missing_s:
        said += (f"For {format_duration(recording.missing_s)} there are no samples: they count as quiet.",)
    return said


# --- text ------------------------------------------------------------------------------------------------------


def _details(found: Finding, recording: Recording, asked: whatif.Question) -> list[str]:
    lines = [found.volume, "", *verdict.heading(recording.rates, asked), "", *verdict.table(found.evenly)]
    lines += verdict.ending(asked, found.evenly, found.doubts)
    return [*lines, *_bursts(found)]


def _summary(found: Finding) -> list[str]:
    seen = f"{format_duration(found.seen_s)} in means over {format_duration(found.interval_s)}"
    moved = f"{found.written_gb:.1f} GB written, {found.read_gb:.1f} GB read, at most {found.peak_mb_s:.1f} MB/s"
    lines = [f"{found.volume}: {seen}, {moved}", *_choices(found.evenly)]
    lines += [f"  {line}" for line in found.doubts if line != REQUESTS]
    return [*lines, f"  {found.evenly.verdict}", *(f"  {line}" for line in _bursts(found))]


def _choices(found: whatif.Answer) -> list[str]:
    named = {way.name: way for way in found.ways}
    width = max(len(line) for line in render_choices(found.choices, found.currency))
    slow = named["static-slow"]
    lines = [f"{'  now':{width}}  {_figures(slow, found)}"]
    for choice, line in zip(found.choices, render_choices(found.choices, found.currency), strict=True):
        lines.append(f"{line:{width}}  {_figures(named[choice.name], found)}")
    return lines


def _figures(way: Alternative, found: whatif.Answer) -> str:
    return (
        f"{render_money(way.per_month, found.currency):>14} a month {way.waits_min_per_day:8.1f} min of waiting a day"
    )


def _bursts(found: Finding) -> list[str]:
    if found.as_bursts is None:
        return []
    same = [c.name for c in found.as_bursts.choices] == [c.name for c in found.evenly.choices]
    if same and found.as_bursts.worth_it == found.evenly.worth_it:
        return ["If each sample was one burst, the same ways are best."]
    said = found.as_bursts.verdict
    unknown = "How the load moved within a sample is not known. If each was one burst:"
    return [f"{unknown} {said[0].lower()}{said[1:]}", "To know, sample the device with `elastio observe`."]


def _totals(found: Sequence[Finding], hour_value: float | None) -> list[str]:
    """What all volumes cost now and with the best choices, where the price of an hour is known."""
    if hour_value is None or len(found) < 2:
        return []
    chosen = [best(quick_enough(each.evenly.ways), hour_value) for each in found]
    slow, currency = [each.evenly.static[0] for each in found], found[0].evenly.currency
    now, then = (render_money(sum(w.per_month for w in ways), currency) for ways in (slow, chosen))
    waits, less = (sum(w.waits_min_per_day for w in ways) for ways in (slow, chosen))
    today = f"{now} a month and {waits:.1f} min of waiting a day"
    return [f"{len(found)} volumes: {today} now, {then} and {less:.1f} min with the best way of each."]
