"""Options that several commands have."""

from __future__ import annotations

import click

from elastio_testbed.image.debian import SUITES

suite_option = click.option(
    "--suite",
    type=click.Choice(sorted(SUITES)),
    help="Debian of the guests: 12 (bookworm) or 13 (trixie). Without it $ELASTIO_SUITE, else bookworm.",
)
