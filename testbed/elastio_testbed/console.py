"""What the laboratory's commands print beside their results: progress, and an error as one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from elastio.errors import ElastioError
from elastio_testbed.errors import LabError
from elastio_testbed.hypervisor import HypervisorError
from elastio_testbed.image import ImageError


def progress() -> Callable[[str], None]:
    """A function that prints a line to stderr, with the seconds since this call."""
    began = time.monotonic()
    return lambda text: click.echo(f"[{time.monotonic() - began:7.1f} s] {text}", err=True)


@contextmanager
def click_errors() -> Iterator[None]:
    """Turn what can go wrong with guests, images and clouds into ClickException: one sentence, exit code 1."""
    try:
        yield
    except (HypervisorError, ImageError, LabError, ElastioError) as error:
        raise click.ClickException(str(error)) from error
