"""`elastio metrics`: metrics for Prometheus, from the agent's status and the ledger. The agent need not run."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import click

from elastio import __version__, whole_file
from elastio.accounting.database import local_zone
from elastio.accounting.history_store import read_loads, read_moved, read_sums
from elastio.accounting.ledger import Ledger
from elastio.accounting.report import periods
from elastio.config.schema import Config
from elastio.control.protocol import UnreachableError
from elastio.control.status import Status
from elastio.errors import ConfigError, ElastioError
from elastio.metrics.document import Known, document
from elastio.metrics.ledger_values import Bills
from elastio.strategy.spending import Caps
from elastio_cli.app import App
from elastio_cli.ledger import open_ledger
from elastio_cli.which_device import all_devices

MODE = 0o644  # readable for the exporter, which runs as a user of its own


def write_whole(path: Path, text: str) -> None:
    """Replace the file by a new one in the same directory. Raises ElastioError; the old file is then unchanged.

    Only a regular file is replaced: a rename over a device or a link would remove it. Nor is a directory used that is a
    link: the one above may belong to another user, who could send root anywhere. Nothing is synced to disk: after a
    power failure the text is out of date anyway.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            target = Path(f"/proc/self/fd/{folder}") / path.name
            if not whole_file.is_replaceable(target):
                message = f"{path} is not a regular file and is not replaced: name another"
                raise ElastioError(message, code="output.not_regular")
            whole_file.replace(target, text.encode(), mode=MODE)
        finally:
            os.close(folder)
    except OSError as error:
        raise ElastioError(f"{path} cannot be written: {_reason(path, error)}", code="output.unwritable") from error


def _reason(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOTDIR and path.parent.is_symlink():
        return f"{path.parent} is a symbolic link; name the directory itself"
    return error.strerror or str(error)


@click.command()
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Replace FILE as a whole instead of printing, for node_exporter's textfile collector.",
)
@click.pass_obj
def metrics(app: App, output: Path | None) -> None:
    """Print metrics in Prometheus' text format. Without a running agent: elastio_up 0, and what the ledger has.

    Those of all devices, unless one is named.
    """
    wall = app.clock.wall()
    text = document([_known(each, wall) for each in all_devices(app)], wall=wall, version=__version__)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole(output, text)


def _known(app: App, wall: float) -> Known:
    config, seen = _config(app), _status(app)
    served = _device(config, seen)
    bills = _bills(app, served, wall, config.policy().caps if config else None)
    beside = seen.spend.others if seen is not None else None
    return Known(served, seen, bills if bills is None or beside is None else replace(bills, others=beside.others))


def _config(app: App) -> Config | None:
    """None: there is none, or it is invalid. Then caps are not known."""
    try:
        return app.config()
    except ConfigError:
        return None


def _status(app: App) -> Status | None:
    """None: no agent answers. Raises ElastioError where this user may not ask, or the releases differ."""
    try:
        return app.client().status()
    except UnreachableError as error:
        if error.code == "socket.permission":
            raise
        return None


def _device(config: Config | None, seen: Status | None) -> str:
    """The UUID of the backing device: the agent's own, or the one in the configuration; empty: not known."""
    if seen is not None and seen.device_uuid:
        return seen.device_uuid
    return config.device.backing_uuid if config else ""


def _bills(app: App, device: str, wall: float, caps: Caps | None) -> Bills | None:
    """What the ledger has; None: it cannot be read."""
    try:
        with open_ledger(app) as ledger:
            return bills_of(ledger, device, wall, caps)
    except ElastioError:
        return None


def bills_of(ledger: Ledger, device: str, wall: float, caps: Caps | None) -> Bills:
    """What metrics are made from, at `wall`. Raises LedgerError."""
    day, month = periods(wall, local_zone())
    return Bills(
        wall=wall,
        day=day,
        month=month,
        rows=ledger.cycles(float("-inf"), float("inf"), with_steps=False),
        loads=read_loads(ledger.file),
        learned_size_bytes=ledger.learned_size(device),
        caps=caps,
        waits=read_sums(ledger.file),
        moved=read_moved(ledger.file),
    )
