"""What a name says about a series: its direction and its volume. Pure.

A direction is a word of its own, never a part of one: `spread` and `readonly` say nothing about bytes read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from elastio_adviser.rates import TraceError
from elastio_adviser.series import READ, UNNAMED, WRITTEN

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_DIRECTIONS = {"read": READ, "reads": READ, "write": WRITTEN, "writes": WRITTEN, "written": WRITTEN}
# These describe a host, a mount or a cache.
_COMPOUND = re.compile(
    r"(?i)(?<![a-z])(read|write)s?[-_ ]?(replica|only|mostly|heavy|intensive|optimi[sz]ed|ahead|back|through)[a-z]*"
)
_VOLUME = re.compile(r"(?<![0-9A-Za-z])vol[-_]?([0-9a-f]{8,17})(?![0-9a-f])")


def directions(text: str) -> set[str]:
    """The directions that are words of this text; of several words written as one, each begins with a capital."""
    words = (word.lower() for word in _WORD.findall(_COMPOUND.sub(" ", text)))
    return {_DIRECTIONS[word] for word in words if word in _DIRECTIONS}


def direction(what: str, name: str, texts: Iterable[str], stem: str, advice: str) -> str:
    """The direction of the series `what`: what the texts say, else what the file's name says.

    Raises TraceError where nothing says it, or not everything the same.
    """
    found = set().union(*map(directions, texts)) or directions(stem)
    if len(found) != 1:
        said = "is named both read and written" if found else "is not known to be read or written"
        raise TraceError(f"{name}: {what} {said}: {advice}, or read or written into the file's name", code="direction")
    return found.pop()


def volume(what: str, name: str, texts: Iterable[str], stem: str) -> str:
    """The volume's ID, from the texts or else from the file's name, or UNNAMED. Raises TraceError for several."""
    for group in (tuple(texts), (stem,)):
        found = {match for text in group for match in _VOLUME.findall(text)}
        if len(found) > 1:
            raise TraceError(f"{name}: {what} names several volumes", code="volume")
        if found:
            return f"vol-{found.pop()}"
    return UNNAMED
