"""The configuration as text: a new file, and every setting with its value and where the value comes from.

A file has every key with its meaning, the chosen ones set, the others as comments. A value comes from the default, the
file, or a drop-in. Settings of a provider may hold secrets, and what they mean is known to the provider alone. Of
these, only numbers, flags and texts whose key does not look like a secret are shown, and addresses without user,
password and query.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from elastio import whole_file
from elastio.config.files import merged, read_layers
from elastio.config.paths import name_of
from elastio.config.schema import RENAMED, SECTIONS, Config, keys_of, parse
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


DEFAULT = "default"
HIDDEN = "(not shown)"
_SECRET = re.compile(r"pass|secret|token|credential|private|auth|cert|key", re.IGNORECASE)
_WITHIN = re.compile(r"://[^/@\s]*@|[?#].*", re.DOTALL)
# The attributes of `Config` that are not named after their section.
_ATTRIBUTES = {"policy": "policy_settings"}


@dataclass(frozen=True, slots=True)
class Setting:
    """`value` None: not set; HIDDEN: set, and not to be shown. `source`: a file, or DEFAULT."""

    section: str
    key: str
    value: Any
    source: str

    @property
    def text(self) -> str:
        """The value as TOML."""
        return toml(self.value)


def settings(path: Path) -> tuple[Setting, ...]:
    """All settings that the file and its drop-ins make, in the order of the reference page. Raises ConfigError."""
    layers = read_layers(path)
    config = parse(merged(layer for _, layer in layers), name_of(path))
    made = [
        Setting(section, spec.name, getattr(_section(config, section), spec.name), _source(layers, section, spec.name))
        for section in SECTIONS
        for spec in keys_of(section)
    ]
    name = config.provider.name
    return (*made, *_provider(f"provider.{name}", config.provider.settings, layers, ("provider", name)))


def _section(config: Config, section: str) -> Any:
    return getattr(config, _ATTRIBUTES.get(section, section))


def _source(layers: Sequence[tuple[Path, Mapping[str, Any]]], section: str, key: str) -> str:
    older = [old for old, name in RENAMED.items() if name == key] if section == "policy" else []
    for path, layer in reversed(layers):
        table = layer.get(section, {})
        if any(name in table for name in (key, *older)):
            return str(path)
    return DEFAULT


def _provider(
    section: str,
    table: Mapping[str, Any],
    layers: Sequence[tuple[Path, Mapping[str, Any]]],
    place: tuple[str, ...],
) -> list[Setting]:
    """The settings of the provider, and of tables in them."""
    made = []
    for key, value in table.items():
        if not isinstance(value, Mapping):
            source = next((str(path) for path, layer in reversed(layers) if key in _at(layer, place)), DEFAULT)
            made.append(Setting(section, key, _shown(key, value), source))
    for key, value in table.items():  # in TOML, tables come last
        if isinstance(value, Mapping):
            made += _provider(f"{section}.{key}", value, layers, (*place, key))
    return made


def _at(layer: Mapping[str, Any], place: Sequence[str]) -> Mapping[str, Any]:
    found: Any = layer
    for key in place:
        found = found.get(key, {}) if isinstance(found, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def _shown(key: str, value: Any) -> Any:
    if _SECRET.search(key):
        return HIDDEN
    if isinstance(value, str):
        return _WITHIN.sub(lambda m: "://" if m[0].startswith("://") else "", value)
    return value if isinstance(value, bool | int | float) else HIDDEN
