"""Result files: written at once, and readable by the laboratory's own commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from elastio import whole_file

WIDTH = 120


def write_text(path: Path, text: str) -> None:
    """Replace the file atomically. Missing folders are made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.replace(path, text.encode())


def json_text(document: Mapping[str, Any]) -> str:
    """The document in lines of `WIDTH`; what is longer, a record of a run, has a line of its own."""
    lines = [""]
    for piece in _between("{", (_keyed(key, _members(value)) for key, value in document.items()), "}"):
        if lines[-1] and len(lines[-1]) + 1 + len(piece) > WIDTH:
            lines.append("")
        lines[-1] += f" {piece}" if lines[-1] else piece
    return "\n".join(lines) + "\n"


def _members(value: Any) -> list[str]:
    """The pieces of a line: each record of a list or of a table, or the whole value."""
    if isinstance(value, Mapping) and all(isinstance(each, Mapping | list) for each in value.values()):
        return _between("{", (_keyed(key, [_text(each)]) for key, each in value.items()), "}")
    if isinstance(value, list) and all(isinstance(each, Mapping | list) for each in value):
        return _between("[", ([_text(each)] for each in value), "]")
    return [_text(value)]


def _keyed(key: str, pieces: list[str]) -> list[str]:
    return [f"{json.dumps(key)}:{pieces[0]}", *pieces[1:]]


def _between(begin: str, parts: Iterable[list[str]], end: str) -> list[str]:
    """The pieces of all parts, with commas between the parts; the brackets are in the first and the last."""
    first, *rest = [piece for part in parts for piece in (*part[:-1], f"{part[-1]},")] or [""]
    pieces = [begin + first, *rest]
    return [*pieces[:-1], pieces[-1].removesuffix(",") + end]


def _text(value: Any) -> str:
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


def shown_setups(document: Mapping[str, Any]) -> dict[str, Any]:
    """The set-ups of the repetition that stands for all: the one whose picture is drawn."""
    found: dict[str, Any] = document["repetitions"][document["shown"]]["setups"]
    return found


def read_result(path: Path) -> dict[str, Any]:
    """The document of a result. Raises ClickException for any other content."""
    document = read_json(path)
    if not document.get("repetitions"):
        raise click.ClickException(f"{path} is not a result of `elastio-testbed run`: it has no repetitions")
    return document
