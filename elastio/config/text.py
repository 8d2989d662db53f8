"""Writes a configuration file: every key with its meaning, the chosen ones set, the others as comments."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path

from elastio import whole_file
from elastio.config.schema import SECTIONS, keys_of
from elastio.errors import ConfigError

WIDTH = 100


def render(chosen: Mapping[str, object], notes: tuple[str, ...] = ()) -> str:
    """The text of a file. `chosen` maps `section.key` to its value; `notes` are comments at the top."""
    lines = [f"# {line}" for note in notes for line in textwrap.wrap(note, WIDTH)]
    for section, kind in SECTIONS.items():
        about = (kind.__doc__ or "").partition(": ")[2]
        lines += ["", f"# {about[:1].upper()}{about[1:]}", f"[{section}]"]
        for spec in keys_of(section):
            rule = spec.metadata["rule"]
            lines += [f"# {line}" for line in textwrap.wrap(f"{rule.meaning}; {rule.allowed}", WIDTH)]
            value = chosen.get(f"{section}.{spec.name}")
            lines.append(_assignment(spec.name, value, spec.default))
    return "\n".join(lines).lstrip("\n") + "\n"


def _assignment(name: str, value: object, default: object) -> str:
    if value is not None:
        return f"{name} = {toml(value)}"
    if default in (None, MISSING):
        return f"# {name} ="
    return f"# {name} = {toml(default)}"


def toml(value: object) -> str:
    """A string, path, number, flag, list or table of them in TOML. A JSON string is a valid TOML string."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(name)} = {toml(each)}' for name, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Path):
        return json.dumps(str(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def exists(path: Path) -> ConfigError:
    """The error for a file that is not to be replaced."""
    return ConfigError(f"{path} exists and was not changed: use --force to replace it, or --print", code="file.exists")


def write(path: Path, text: str, *, replace: bool) -> None:
    """Write the whole file or nothing. Raises ConfigError if it exists and `replace` is false."""
    if path.exists() and not replace:
        raise exists(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.replace(path, text.encode(), mode=0o644, sync=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}", code="file.unwritable") from error
