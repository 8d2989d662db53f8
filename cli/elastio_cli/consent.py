"""Questions that must be answered before something is changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from elastio.errors import ElastioError


def confirm(question: str, instead: str = "--yes") -> None:
    """Ask for yes or no. Raises click.Abort for no, ElastioError if nobody can answer; `instead`: what answers then."""
    with _answered(instead):
        click.confirm(question, abort=True)


def typed(question: str, instead: str = "--yes") -> str:
    """What was typed, perhaps nothing. Raises ElastioError if nobody can answer."""
    with _answered(instead):
        return str(click.prompt(question, default=""))


@contextmanager
def _answered(instead: str) -> Iterator[None]:
    """click raises the same error for Ctrl-C and for an input that has ended; only its context tells which it was."""
    try:
        yield
    except click.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        click.echo()  # the question has no end of line
        text = f"nobody has answered, and nothing more is done: answer on a terminal, or give {instead}"
        raise ElastioError(text, code="consent.none") from None
