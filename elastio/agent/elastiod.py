"""The command `elastiod`: the agent in the foreground, on the real host or on a simulated one."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from elastio import __version__, registry
from elastio.agent.daemon import Daemon, let_requests_pass
from elastio.config.paths import DEFAULT_PATH
from elastio.control.exit_codes import Exit
from elastio.errors import ConfigError, ElastioError, HostError, LockedError
from elastio.host import journald
from elastio.host.locks import AGENT_RUNS
from elastio.host.sysfs import Sysfs


def started(path: Path) -> Daemon:
    """The daemon, which has its locks. Whatever keeps it from starting, no application stays held back.

    But if an agent of this device runs: what it has set is in force, and is its own.
    """
    try:
        return Daemon(path)
    except Exception as error:
        if not isinstance(error, LockedError) or error.code != AGENT_RUNS:
            let_requests_pass(Sysfs(owner=path.stem))
        raise


@click.command(name="elastiod")
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=DEFAULT_PATH,
    show_default=True,
    help="Configuration file.",
)
@click.option("--sim", is_flag=True, help="Use a simulated kernel and cloud instead of the real ones.")
@click.version_option(__version__)
def main(path: Path, sim: bool) -> None:
    """Run the elastio agent in the foreground. systemd starts it as elastiod.service."""
    logging.basicConfig(level=logging.INFO, handlers=[journald.handler()])
    try:
        if sim:
            registry.simulator("run")(path if path != DEFAULT_PATH or path.exists() else None)
        else:
            daemon = started(path)
            logging.getLogger().setLevel(daemon.config.agent.log_level.upper())
            daemon.run()
    except ConfigError as error:
        click.echo(f"elastiod: {error}", err=True)
        sys.exit(Exit.CONFIG)
    except (HostError, ElastioError) as error:
        click.echo(f"elastiod: {error}", err=True)
        sys.exit(Exit.FAILED)
