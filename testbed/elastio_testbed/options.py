"""Options that several commands have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from elastio_cli.options import Finite
from elastio_testbed.adopted import CASES
from elastio_testbed.hypervisor import choice
from elastio_testbed.hypervisor.qemu import stored
from elastio_testbed.hypervisor.qemu.accel import accelerator
from elastio_testbed.image.debian import SUITES

Command = Callable[..., Any]
FACTOR = Finite(0.01, 10)
UNDER_EMULATION = 0.5

suite_option = click.option(
    "--suite",
    type=click.Choice(SUITES),
    help="Debian release of the guests: 12 (bookworm) or 13 (trixie). Default: $ELASTIO_SUITE, else bookworm.",
)


def boot_every_guest() -> None:
    """Let no guest of this process resume from a stored state."""
    os.environ[stored.VARIABLE] = "no"


def use_hypervisor(name: str) -> None:
    """Let all guests of this process be on it."""
    os.environ[choice.VARIABLE] = name


def guest_options(command: Command) -> Command:
    """The options of every command that starts guests: on what they are, with which Debian, and from which state."""
    hypervisor = click.option(
        "--hypervisor",
        type=click.Choice(choice.HYPERVISORS),
        expose_value=False,
        callback=lambda _ctx, _param, name: use_hypervisor(name) if name else None,
        help="User-mode Linux or QEMU. Default: $ELASTIO_HYPERVISOR, else uml where it runs.",
    )
    no_stored_state = click.option(
        "--no-stored-state",
        is_flag=True,
        expose_value=False,
        callback=lambda _ctx, _param, is_given: boot_every_guest() if is_given else None,
        help="Boot every guest on QEMU, instead of resuming the state of one that was booted before.",
    )
    return suite_option(hypervisor(no_stored_state(command)))


adopted_option = click.option(
    "--adopted",
    type=click.Choice(CASES),
    is_flag=False,
    flag_value=CASES[0],
    help=f"The volume had its file system before it was adopted: without a value {CASES[0]}.",
)
json_option = click.option("--json", "json_path", type=click.Path(path_type=Path), help="File for the result.")
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True, help="Seed of the plan."
)
scale_option = click.option(
    "--scale", type=FACTOR, help="Factor for times and amounts of data. Default: 1, for cold 0.1."
)


def default_bandwidth() -> float:
    """The factor that a guest on this machine keeps up with."""
    return 1.0 if accelerator() == "kvm" else UNDER_EMULATION


bandwidth_option = click.option(
    "--bandwidth",
    type=FACTOR,
    default=default_bandwidth,
    help="Factor for bandwidths and amounts of data. Default: 1 with KVM, else 0.5.",
)
