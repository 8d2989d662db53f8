"""Reads the configuration file and its drop-ins, and merges them. What the keys mean is in `schema`."""

from __future__ import annotations

import codecs
import json
import os
import stat
import tomllib
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

from elastio.codec import text_of
from elastio.errors import ConfigError

# A configuration has a few kilobytes; a larger file was given by mistake.
MAX_FILE_BYTES = 1024 * 1024


def read_merged(path: Path) -> dict[str, Any]:
    """The TOML document of the file and its drop-ins. Raises ConfigError with a code `file.*`."""
    return merged(layer for _, layer in read_layers(path))


def read_layers(path: Path) -> tuple[tuple[Path, dict[str, Any]], ...]:
    """The TOML documents of the file and its drop-ins, in the order in which they are merged. Raises ConfigError."""
    return tuple((layer, _read(layer)) for layer in (path, *drop_ins(path)))


def read_drop_ins(path: Path) -> dict[str, Any]:
    """The merged TOML document of the drop-ins alone: they may be there before the file. Raises ConfigError."""
    return merged(map(_read, drop_ins(path)))


def merged(layers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The documents, each merged into those before it."""
    return reduce(overlay, layers, {})


def drop_ins(path: Path) -> list[Path]:
    """The drop-in files of a configuration file, in the order in which they are merged."""
    return sorted(path.with_name(f"{path.name}.d").glob("*.toml"))


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            raw = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration at {path}: write one with `elastio init`", code="file.missing"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", code="file.unreadable") from error
    _require_trusted(path, status)
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than 1 MiB and cannot be a configuration", code="file.too_large")
    return _document(path, raw)


def _document(path: Path, raw: bytes) -> dict[str, Any]:
    """Its TOML document. Any bytes may look like UTF-16: what is no TOML then was hardly meant as such a text."""
    try:
        text = text_of(raw)
        if text or raw in (b"", codecs.BOM_UTF8):
            return tomllib.loads(text)
        error: Exception = ValueError("it has a byte order mark and no text")
    except UnicodeDecodeError as undecoded:
        raise ConfigError(
            f"{path} is neither UTF-8 nor UTF-16 text (byte {undecoded.start})", code="file.encoding"
        ) from undecoded
    except (ValueError, RecursionError) as invalid:  # also numbers with thousands of digits, and deep nesting
        error = invalid
    encoding = json.detect_encoding(raw)
    if encoding.startswith("utf-8"):
        raise ConfigError(f"{path} is not valid TOML: {error}", code="file.syntax") from error
    text = f"{path} is not UTF-8 text: taken for {encoding.upper()}, it is not valid TOML ({error})"
    raise ConfigError(text, code="file.encoding") from error


def _require_trusted(path: Path, status: os.stat_result) -> None:
    """Raises ConfigError if others can write the file: it decides what is bought and who gets credentials."""
    is_other_group = status.st_gid not in (0, os.getegid())
    if status.st_mode & (stat.S_IWOTH | (stat.S_IWGRP if is_other_group else 0)):
        raise ConfigError(f"{path} is writable by other users and is not used: chmod go-w {path}", code="file.mode")
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"{path} belongs to user {status.st_uid} and is not used: chown root {path}", code="file.owner"
        )


def overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` merged into `below`: tables key by key, other values replaced."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = overlay(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both
