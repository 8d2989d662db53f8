"""What the laboratory's commands print beside their results: progress, and an error as one sentence."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click

from elastio.errors import ElastioError
from elastio_testbed.errors import LabError
from elastio_testbed.hypervisor import HypervisorError
from elastio_testbed.image import ImageError

Say = Callable[[str], None]


def progress() -> Say:
    """A function that prints a line to stderr, with the seconds since this call."""
    began = time.monotonic()
    return lambda text: click.echo(f"[{time.monotonic() - began:7.1f} s] {text}", err=True)


def conclude(document: Mapping[str, object]) -> None:
    """Print the result of a campaign without its single runs. Exit code 1 if it is not sound."""
    click.echo(json.dumps({name: value for name, value in document.items() if name != "stories"}, indent=2))
    if not document["sound"]:
        sys.exit(1)


@contextmanager
def click_errors() -> Iterator[None]:
    """Turn what can go wrong with guests, images and clouds into ClickException: one sentence, exit code 1."""
    try:
        yield
    except (HypervisorError, ImageError, LabError, ElastioError) as error:
        raise click.ClickException(str(error)) from error
