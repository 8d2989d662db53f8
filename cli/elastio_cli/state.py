"""`elastio state`: says whether the state directory is still needed. Run by the package before it is removed.

Whether the state directory is still needed: the question before the agent is removed from a machine.

The agent need not run, and no configuration is read. The last record of the journal says whether a cycle is open: a
volume that may still be billed and may hold data that is nowhere else. The mount guard's files say which devices may
need their cache. Both are kept until the agent has seen the volume deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from elastio.agent.journal import open_cycle, read
from elastio.config.paths import DEVICES, GUARDS, JOURNAL, RUNTIME_DIR, common_dir
from elastio.control.exit_codes import Exit, sentence
from elastio.core.state import Phase
from elastio.errors import ConfigError, DeviceBusyError, JournalError, LockedError
from elastio.host.locks import lock_device
from elastio_cli.app import App
from elastio_cli.ledger import state_dir
from elastio_cli.which_device import all_devices, chosen


@dataclass(frozen=True, slots=True)
class Needed:
    """Why the state directory must be kept. `volume`: the cache volume's id, or empty if it is not known."""

    volume: str = ""
    guarded: tuple[str, ...] = ()  # UUIDs of backing devices whose cache may hold what the device does not
    is_faulted: bool = False

    @property
    def remedy(self) -> str:
        """What an operator is to do."""
        release = "run `elastio pause` and `elastio flush --wait`"
        return "run `elastio recover`, which says why the agent is faulted" if self.is_faulted else release

    def __str__(self) -> str:
        """The end of a sentence, for operators."""
        volume = f"cache volume {self.volume}" if self.volume else "a cache volume"
        devices = f" of backing device {', '.join(self.guarded)}" if self.guarded else ""
        return f"{volume}{devices} is not released: it may be billed, and may hold data that is nowhere else"


def why_needed(state_dir: Path) -> Needed | None:
    """Why `state_dir` must be kept; None: it may be removed. Raises JournalError if it cannot be read."""
    records = [*read(state_dir / JOURNAL)]
    cycle, is_faulted = open_cycle(records), _last(records, "to") == Phase.FAULTED
    guarded = _guarded(state_dir / GUARDS)
    if cycle is None and not guarded and not is_faulted:
        return None
    volume = cycle.get("volume_id") if isinstance(cycle, Mapping) else None
    return Needed(str(volume or ""), guarded, is_faulted)


def given_up(state_dir: Path) -> tuple[str, ...]:
    """The volumes that an operator has given up: the agent does not delete them. Raises JournalError as `read` does."""
    listed = _last([*read(state_dir / JOURNAL)], "given_up")
    return tuple(map(str, listed)) if isinstance(listed, list) else ()


def _guarded(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in folder.iterdir()))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise JournalError(f"cannot read {folder}: {error.strerror}", code="guards.unreadable") from error


def require_no_cycle(app: App, uuid: str) -> None:
    """Raises DeviceBusyError while the cache of this backing device is not released, by what its agent has recorded.

    The kernel may show none: after a power cut a superblock does not have what was written seconds before. Journals of
    all devices are read, whichever was named.
    """
    folders, unknown = _folders(chosen(replace(app, wanted=None), None))
    if unknown:
        raise unknown[0]
    for folder in folders:
        own = [record for record in read(folder / JOURNAL) if (record.get("backing") or uuid) == uuid]
        if open_cycle(own) is not None or uuid in _guarded(common_dir(folder) / GUARDS):
            text = f"{Needed(guarded=(uuid,))}: run `elastio pause` and `elastio flush --wait`; nothing was changed"
            raise DeviceBusyError(text, code="release.cycle")
        if _last(own, "to") == Phase.FAULTED:
            text = f"the agent of backing device {uuid} is faulted, and `elastio recover` says why; nothing was changed"
            raise DeviceBusyError(text, code="release.faulted")


def _last(records: Sequence[Mapping[str, Any]], key: str) -> object:
    """The value in the last record that has one."""
    return next((record[key] for record in reversed(records) if key in record), None)


@contextmanager
def without_agent(app: App, uuid: str) -> Iterator[None]:
    """The agent of this backing device does not run meanwhile, and has released its cache.

    Raises DeviceBusyError, or what `require_no_cycle` raises.
    """
    try:
        lock = lock_device(app.sysfs().path(str(RUNTIME_DIR).lstrip("/")), uuid)
    except LockedError as error:
        text = f"the agent of backing device {uuid} runs: stop it first, as with `systemctl stop elastiod`"
        raise DeviceBusyError(f"{text}; nothing was changed", code="release.agent") from error
    try:
        require_no_cycle(app, uuid)
        yield
    finally:
        os.close(lock)


@click.command(short_help="Show whether the agent may be removed from this machine.")
@click.pass_context
def state(ctx: click.Context) -> None:
    """Show whether the agent and its state directory may be removed from this machine.

    They may not while a cycle is open: the exit code is then 5. Nor while a configuration is there and cannot be used,
    because it may name the directory: the exit code is then 3. Needs no running agent, and changes nothing. Without
    --device this is about all devices, also about those whose configuration is gone.
    """
    app: App = ctx.obj
    refused, folders, unknown = False, *_folders(app)
    for error in unknown:
        click.echo(f"{sentence(error)}; correct it: where this agent keeps its state is not known until then", err=True)
    for folder in folders:
        needed = why_needed(folder)
        refused |= needed is not None
        if needed is None:
            click.echo(f"no cycle is open: {folder} is not needed any more")
            for volume in given_up(folder):
                click.echo(f"volume {volume} was given up: it is billed until you delete it", err=True)
            continue
        click.echo(f"elastio: {needed}; {needed.remedy}, and keep {folder} until then", err=True)
    if refused or unknown:
        ctx.exit(Exit.CONFIG if unknown else Exit.REFUSED)


def _folders(app: App) -> tuple[tuple[Path, ...], tuple[ConfigError, ...]]:
    """The state directories of the devices that are meant; of all devices, also those without a configuration.

    Then the errors of configurations that are there and do not say where theirs is.
    """
    configured, unknown = [], []
    for each in all_devices(app):
        try:
            configured.append(_state_dir(each))
        except ConfigError as error:
            unknown.append(error)
            configured.append(state_dir(each))  # what can be found in spite of the error is shown as well
    if app.directory is None or app.wanted is not None:
        return tuple(configured), tuple(unknown)
    common = dict.fromkeys(common_dir(folder) for folder in configured)
    left = (path for folder in common for path in sorted((folder / DEVICES).glob("*")))
    return tuple(dict.fromkeys((*common, *configured, *left))), tuple(unknown)


def _state_dir(app: App) -> Path:
    """The default one only where there is no configuration: neither the file nor drop-ins. Raises ConfigError."""
    path = app.config_path
    is_there = os.path.lexists(path) or any(path.with_name(f"{path.name}.d").glob("*.toml"))
    return app.config().agent.state_dir if is_there else state_dir(app)
