"""Input as somebody might send it who means harm, or as a bad disk leaves it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

# What trips parsers: no numbers, numbers no float holds, text that is almost right, names that lead elsewhere.
ODD_NUMBERS = st.sampled_from([0, -1, 2**63, 10**400, -(10**400), 1e308, float("nan"), float("inf"), -0.0, True])
ODD_TEXTS = st.sampled_from(
    [
        "",
        "\0",
        "../../etc/passwd",
        "/dev/vda",
        "a\nb",
        "\u2028",
        "[none]",
        "x" * 5000,
        "1e999",
        "nan",
        "-1",
        "\uff11\uff12",
    ]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), ODD_NUMBERS, ODD_TEXTS)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)
DEEP = b"[" * 30_000


def lines(*good: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    """A line of JSON: arbitrary bytes, arbitrary JSON, or a good line of which something was replaced or cut off."""
    if not good:
        return RUBBISH
    texts = [json.dumps(each).encode() for each in good]
    cut = st.sampled_from(texts).flatmap(lambda text: st.integers(0, len(text)).map(lambda n: text[:n]))
    mixed = st.sampled_from(list(good)).flatmap(altered).map(to_line)
    return st.one_of(RUBBISH, cut, mixed)


def to_line(value: object) -> bytes:
    return json.dumps(value).encode()


RUBBISH = st.one_of(st.binary(max_size=300), JSON.map(to_line), st.just(DEEP))


@st.composite
def altered(draw: st.DrawFn, good: Mapping[str, Any]) -> dict[str, Any]:
    """The same with one value replaced, at whatever depth, or one key left out or added."""
    copy = json.loads(json.dumps(good))
    place = copy
    while True:
        key = draw(st.sampled_from(sorted(place)) if place else st.text())
        inner = place.get(key)
        if not (isinstance(inner, dict) and inner and draw(st.booleans())):
            break
        place = inner
    what = draw(st.sampled_from(["replace", "drop", "add"]))
    if what == "drop":
        place.pop(key, None)
    else:
        place[key if what == "replace" else draw(st.text())] = draw(JSON)
    return dict(copy)
