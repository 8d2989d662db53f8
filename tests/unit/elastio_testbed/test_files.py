"""Result files: what is written is what is read, in lines that can be compared."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elastio_testbed.files import json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=5))
def test_the_text_is_the_document(document: dict[str, Any]) -> None:
    assert json.loads(json_text(document)) == document


def test_short_ones_share_a_line_and_a_long_record_has_its_own() -> None:
    long = {"n": 1, "at": [5] * 50}
    document = {"a": 1, "runs": [{"n": 1}, long, {"n": 2}], "setups": {"x": {"s": 1}}, "none": [], "at": [4, 5]}
    assert json_text(document).splitlines() == [
        '{"a":1, "runs":[{"n":1},',
        f"{json.dumps(long, separators=(',', ':'))},",
        '{"n":2}], "setups":{"x":{"s":1}}, "none":[], "at":[4,5]}',
    ]
