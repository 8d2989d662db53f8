"""Options that several commands have."""

from __future__ import annotations

import os
from pathlib import Path

import click

from elastio.cli.numbers import Finite
from elastio_testbed.hypervisor.qemu.accel import accelerator
from elastio_testbed.hypervisor.qemu.stored import VARIABLE
from elastio_testbed.image.debian import SUITES

FACTOR = Finite(0.01, 10)
UNDER_EMULATION = 0.5

suite_option = click.option(
    "--suite",
    type=click.Choice(SUITES),
    help="Debian release of the guests: 12 (bookworm) or 13 (trixie). Default: $ELASTIO_SUITE, else bookworm.",
)


def boot_every_guest() -> None:
    """Let no guest of this process resume from a stored state."""
    os.environ[VARIABLE] = "no"


stored_state_option = click.option(
    "--no-stored-state",
    is_flag=True,
    expose_value=False,
    callback=lambda _ctx, _param, is_given: boot_every_guest() if is_given else None,
    help="Boot every guest, instead of resuming the state of one that was booted before.",
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
