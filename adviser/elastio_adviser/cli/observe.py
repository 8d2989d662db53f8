"""`elastio observe`: samples a disk of this machine and says what would serve its load best."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from elastio.core.model import Sample
from elastio.errors import ConfigError, ElastioError
from elastio.units import GIB, format_duration
from elastio_adviser import traces, whatif
from elastio_adviser.cli import verdict
from elastio_adviser.doubts import doubts, saturation
from elastio_adviser.observer import BlockDevice, Observer, Progress, find_device
from elastio_cli.app import App
from elastio_cli.options import duration
from elastio_cli.terminal import busy, handled

MOST_S = 31 * 86400.0
# Without a terminal, a line of progress each minute.
LINE_S = 60.0
# SIGTERM as Ctrl-C, and SIGINT also where a script started this in the background.
ENDED_BY = (signal.SIGTERM, signal.SIGINT)


@click.command(
    short_help="Sample a device, and say what would have served it best.", context_settings={"show_default": True}
)
@click.argument("device")
@click.option(
    "--for",
    "for_s",
    metavar="TIME",
    default="10m",
    callback=duration(1, MOST_S),
    help="How long, such as 90s, 10m, 1d.",
)
@click.option(
    "--interval", "interval_s", metavar="TIME", default="1s", callback=duration(0.1, 3600), help="Length of a sample."
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Keep the samples in this file, a trace in CSV."
)
@click.option("--size-gib", type=verdict.SIZE, help="Size of the volume  [default: that of the device]")
@click.option(
    "--saturated",
    "saturated_mb_s",
    type=verdict.MB_S,
    help="Bandwidth limit of the device  [default: --backing-mb-s, where a sample reaches it]",
)
@verdict.add_options(verdict.VOLUME_OPTIONS)
@verdict.add_options(verdict.PRICE_OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document.")
@click.pass_context
def observe(
    ctx: click.Context, /, device: str, for_s: float, interval_s: float, out: Path | None, as_json: bool, **options: Any
) -> None:
    """Sample a block device, and say what would have served its load best: the volume as it is, a fast one, one that is
    modified for the peaks, the agent, or cold backing.

    DEVICE is any disk, partition or mapping of this machine. Nothing is changed, no cloud is asked, and neither bcache,
    root nor a configuration is needed. Ctrl-C ends early, with the verdict on what was seen.
    """
    app: App = ctx.obj
    found = find_device(app.sysfs(), device)
    size_bytes = int((options["size_gib"] or max(1.0, found.size_bytes / GIB)) * GIB)
    _require_valid(verdict.question((), for_s, size_bytes, options))  # before hours of sampling
    with _samples(out) as path:
        observer = Observer(found, app.sysfs(), app.clock, app.sleep, for_s, interval_s)
        _sample(observer, path, for_s)
        _judge(ctx, found, path, out, as_json, options)


def _require_valid(asked: whatif.Question) -> None:
    try:
        whatif.require_valid(asked)
    except ConfigError as error:
        raise click.UsageError(f"the agent does not accept these settings: {error}") from error


# --- sampling ----------------------------------------------------------------------------------------------------


def _samples(out: Path | None) -> AbstractContextManager[Path]:
    """The file of the samples: a new one that is kept, or one that is removed. Raises ElastioError."""
    if out is None:
        return _temporary()
    try:
        out.touch(exist_ok=False)
    except FileExistsError:
        raise ElastioError(f"{out} exists already: name a new file with --out", code="out.exists") from None
    except OSError as error:
        raise ElastioError(f"{out} cannot be written: {error.strerror or error}", code="out.unwritable") from error
    return nullcontext(out)


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="elastio-observe-") as folder:
        yield Path(folder) / "samples.csv"


def _sample(observer: Observer, path: Path, for_s: float) -> None:
    """Sample until the end, Ctrl-C or SIGTERM."""
    shown = f"{observer.device.name} for {format_duration(for_s)}"
    click.echo(f"elastio: sampling {shown}; Ctrl-C ends early, with the verdict on what was seen", err=True)
    try:
        with handled(ENDED_BY, signal.default_int_handler), path.open("w", encoding="ascii", buffering=1) as file:
            observer.run(file, _progress(for_s))
    except KeyboardInterrupt:
        click.echo("", err=True)
    except OSError as error:
        raise ElastioError(f"{path} cannot be written: {error.strerror or error}", code="out.unwritable") from error


def _progress(for_s: float) -> Progress:
    """On a terminal one line that changes, else a line each minute."""
    is_terminal, last, most = sys.stderr.isatty(), 0.0, 0.0

    def show(since_s: float, sample: Sample) -> None:
        nonlocal last, most
        most = max(most, sample.adaptive.total_mb_s)
        is_end = since_s >= for_s - 1e-6
        if not is_terminal and (since_s - last < LINE_S or is_end):
            return
        last = since_s
        text = (
            f"{format_duration(since_s)} of {format_duration(for_s)}: {sample.adaptive.total_mb_s:.1f} MB/s, at most "
            f"{most:.1f} MB/s"
        )
        click.echo(f"\r{text:<70}" if is_terminal else f"elastio: {text}", err=True, nl=not is_terminal or is_end)

    return show


# --- the verdict ---------------------------------------------------------------------------------------------------


def _judge(
    ctx: click.Context, device: BlockDevice, path: Path, out: Path | None, as_json: bool, options: dict[str, Any]
) -> None:
    """Print what `simulate --trace` says of the same samples."""
    rates = traces.read(path, "csv").rates
    backing = verdict.backing_mb_s(options)
    saturated = options["saturated_mb_s"] or saturation(rates, backing)
    size_gib = options["size_gib"] or max(1.0, device.size_bytes / GIB)
    wanted, seen_s = verdict.wanted_of(rates, saturated)
    asked = verdict.question(wanted, seen_s, int(size_gib * GIB), options)
    verdict.announce(asked)
    with busy("replaying the samples"):
        found = whatif.answer(asked)
    unknown = doubts(rates, asked, found, saturated)
    again = ["elastio", "simulate", "--trace", str(out), "--backing-mb-s", str(backing), "--size-gib", str(size_gib)]
    again += ["--saturated", str(saturated)] if saturated else []
    again = [*again, *verdict.given(ctx)] if out else []
    if as_json:
        shown = {"device": asdict(device), "seen_s": seen_s, "answer": asdict(found), "doubts": unknown, "again": again}
        click.echo(json.dumps(shown, indent=2))
        return
    lines = [*verdict.heading(rates, asked), "", *verdict.table(found), *verdict.ending(asked, found, unknown)]
    if again:
        lines[-1:-1] = [f"The same from the samples: {shlex.join(again)}", ""]
    click.echo("\n".join(lines))
