"""`--device` of every command: which device is meant, and what happens where several are there and none is named.

A command that only reads shows all of them, one after the other. One that acts, follows, or prints a document for
programs is for one device: it is refused, with the names. `flush`, `quiesce` and `unquiesce` have `--all`, for scripts
that know no names. A VM with one device needs no option.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click
from click.shell_completion import CompletionItem

from elastio.config.neighbours import Device, devices_in
from elastio.config.paths import DEFAULT_PATH
from elastio.control.exit_codes import Exit, exit_of, sentence
from elastio.errors import ElastioError
from elastio.host.sysfs import Sysfs
from elastio_cli.app import App

KERNEL_S = 15.0
# Shown for one device after the other.
EACH = frozenset({"status", "why", "history", "doctor", "events"})
# These read all devices by themselves, or none.
ALL = frozenset({"audit", "device", "init", "janitor", "metrics", "prices", "report", "setup", "simulate", "state"})
# Of other distributions: they are about an account.
ACCOUNTS = frozenset({"aws", "openstack"})
# With --all these are for all devices; the first two for one after the other.
WITH_ALL = ("flush", "unquiesce", "quiesce")
# Of the commands in EACH: what goes on without an end, or is one document.
FOR_ONE = ("as_json", "as_csv", "follow")


def with_device(name: str, command: click.Command) -> click.Command:
    """The command, or every command of a group, with the option `--device` if it has none of its own."""
    if isinstance(command, click.Group):
        for part in command.commands.values():
            with_device(name, part)
        return command
    if any("--device" in p.opts for p in command.params) or name == "observe":
        return command
    choose = functools.partial(_choose, needs_one=name not in EACH | ALL | ACCOUNTS)
    command.params.append(
        click.Option(
            ["which_device", "--device"],  # a command may have an argument of that name
            metavar="DEVICE",
            expose_value=False,
            callback=choose,
            shell_complete=_names,
            help="Device: its name, UUID, /dev/bcacheN or mount point.",
        )
    )
    if name in WITH_ALL:
        command.params.append(
            click.Option(
                ["--all"], is_flag=True, is_eager=True, expose_value=False, callback=_note_all, help="All devices."
            )
        )
    if name in {*EACH, *WITH_ALL[:2]} and command.callback is not None:
        command.callback = _each(command.callback)
    return command


def _note_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta["elastio.all"] = value


def _choose(ctx: click.Context, _param: click.Parameter, value: str | None, *, needs_one: bool) -> None:
    app = ctx.obj
    if ctx.resilient_parsing or not isinstance(app, App):
        return
    is_for_all = ctx.meta.get("elastio.all")
    if is_for_all and (value or app.wanted):
        raise click.UsageError("give --all or --device, not both", ctx)
    ctx.obj = app = chosen(app, value or app.wanted)
    if app.several and needs_one and not is_for_all:
        raise several(app.several, ctx)


def _names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    found = devices_in(DEFAULT_PATH.parent)
    return [CompletionItem(d.name, help=d.uuid) for d in found if d.name.startswith(incomplete)]


def several(devices: Sequence[Device], ctx: click.Context | None = None) -> click.UsageError:
    """The error where one device has to be named."""
    return click.UsageError(f"there are several devices, name one with --device: {_shown(devices)}", ctx)


def _shown(devices: Sequence[Device]) -> str:
    return ", ".join(map(str, devices)) or "none"


def _each(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Calls it for each device where several are there; the exit code is then the highest."""

    @functools.wraps(callback)
    def run(*args: Any, **values: Any) -> None:
        ctx = click.get_current_context()
        app = ctx.obj
        if not isinstance(app, App) or not app.several:
            callback(*args, **values)
            return
        if any(values.get(name) for name in FOR_ONE):
            raise several(app.several, ctx)
        worst = 0
        for number, device in enumerate(app.several):
            click.echo(f"{'' if number == 0 else chr(10)}{device.name}:")
            ctx.obj = app.on(device)
            worst = max(worst, _code_of(callback, args, values))
        ctx.exit(worst)

    return run


def _code_of(callback: Callable[..., Any], args: tuple[Any, ...], values: dict[str, Any]) -> int:
    try:
        callback(*args, **values)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except ElastioError as error:
        click.echo(sentence(error), err=True)
        return int(exit_of(error))
    return int(Exit.OK)


# --- which one -------------------------------------------------------------------------------------------------


def all_devices(app: App) -> tuple[App, ...]:
    """One for each device that is meant; the same where the option, or a file, says which one."""
    return tuple(app.on(device) for device in app.several) or (app,)


def chosen(app: App, wanted: str | None) -> App:
    """The device that is meant. `several` is set where nothing says which. Raises ElastioError `device.unknown`."""
    found = devices_in(app.directory) if app.directory is not None else _of_file(app)
    if wanted is not None:
        return replace(app.on(find(found, wanted, app.sysfs())), wanted=wanted)
    if app.directory is None or not found:
        return app
    return app.on(found[0]) if len(found) == 1 else replace(app, several=found)


def _of_file(app: App) -> tuple[Device, ...]:
    """The device of the file that was chosen."""
    return tuple(d for d in devices_in(app.config_path.parent) if d.path == app.config_path)


def find(devices: Sequence[Device], wanted: str, sysfs: Sysfs) -> Device:
    """The device with this name, UUID, node or mount point. Raises ElastioError `device.unknown`."""
    for device in devices:
        if wanted == device.name or wanted.lower() == device.uuid:
            return device
    if sysfs.exists(f"sys/class/block/{wanted}"):
        wanted = f"/dev/{wanted}"
    if wanted.startswith("/"):
        from elastio_setup.subprocess_timeout import call_with_timeout  # noqa: PLC0415  a name needs none of this

        known = [d for d in devices if d.uuid]
        number = call_with_timeout(lambda: _at_place(sysfs, [d.uuid for d in known], wanted), KERNEL_S)
        if number is not None:
            return known[number]
    text = f"{wanted} is not a device of elastio here; known are {_shown(devices)}"
    raise ElastioError(text, code="device.unknown")


def _at_place(sysfs: Sysfs, uuids: Sequence[str], wanted: str) -> int | None:
    """Which of them is, or is below, this node or mount point. bcache may hang: call it in a child process."""
    from elastio.host.mounts import node_name  # noqa: PLC0415
    from elastio.host.usage import mounted_at, tree  # noqa: PLC0415
    from elastio.host.view import find_backings  # noqa: PLC0415

    place, name = wanted.rstrip("/") or "/", node_name(sysfs, wanted)
    for index, uuid in enumerate(uuids):
        for backing in find_backings(sysfs, uuid):
            if name and name in (*tree(sysfs, backing.adaptive or backing.device), backing.device):
                return index
            if backing.adaptive and place in mounted_at(sysfs, backing.adaptive):
                return index
    return None
