"""Result files: written at once, and readable by the laboratory's own commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from elastio import whole_file


def write_text(path: Path, text: str) -> None:
    """Replace the file atomically. Missing folders are made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.replace(path, text.encode())


def json_text(document: Mapping[str, Any]) -> str:
    """The document with a line for each key, and for each member of what these keys hold."""
    parts = (f"{json.dumps(key)}: {_members(value)}" for key, value in document.items())
    return _between("{", parts, "}") + "\n"


def _members(value: Any) -> str:
    """A list of records, or a table of them, has a line for each; anything else is one line."""
    if isinstance(value, Mapping) and all(isinstance(each, Mapping | list) for each in value.values()):
        return _between("{", (f"{json.dumps(key)}: {_line(each)}" for key, each in value.items()), "}")
    if isinstance(value, list) and all(isinstance(each, Mapping | list) for each in value):
        return _between("[", map(_line, value), "]")
    return _line(value)


def _between(begin: str, lines: Iterable[str], end: str) -> str:
    inside = ",\n".join(lines)
    return f"{begin}\n{inside}\n{end}" if inside else begin + end


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def write_json(path: Path | None, document: Mapping[str, Any]) -> None:
    """Write the document where a path was given. Raises OSError."""
    if path is not None:
        write_text(path, json_text(document))


def require_writable(path: Path) -> None:
    """Raises ClickException for a file that could not be written at the end of a run of hours."""
    trial = path.with_name(f".{path.name}.trial")
    try:
        write_text(trial, "")
        trial.unlink()
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}; nothing was run") from error


def write_or_print(path: Path, text: str) -> None:
    """Write the result of a run of hours; print it where the file cannot be written any more."""
    try:
        write_text(path, text)
    except OSError as error:
        click.echo(f"{path} cannot be written: {error.strerror}; its content is:\n{text}", err=True)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object of a file. Raises ClickException for any other content."""
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise click.ClickException(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise click.ClickException(f"{path} is not a result: it is not a JSON object")
    return document


def read_result(path: Path) -> dict[str, Any]:
    """The document of a result. Raises ClickException for any other content."""
    document = read_json(path)
    if not document.get("repetitions"):
        raise click.ClickException(f"{path} is not a result of `elastio-testbed run`: it has no repetitions")
    return document
