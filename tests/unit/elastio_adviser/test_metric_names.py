"""What names say about a series: words of their own, never a part of one."""

from __future__ import annotations

import pytest

from elastio_adviser.metric_names import direction, directions, volume
from elastio_adviser.rates import TraceError
from elastio_adviser.series import READ, UNNAMED, WRITTEN


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("VolumeReadBytes", {READ}),
        ("volume_write_bytes", {WRITTEN}),
        ("m_read1", {READ}),
        ("READS", {READ}),
        ("vol-0aaaabbbbccccdddd-Write", {WRITTEN}),
        ("Volume db1 written", {WRITTEN}),
        ("spread1", set()),
        ("already thread bread spreadsheet", set()),
        ("rewritten underwrites writer", set()),
        ("readonly", set()),
        ("read-only", set()),
        ("db_read_replica_2", set()),
        ("read-replica written", {WRITTEN}),
        ("read and written", {READ, WRITTEN}),
    ],
)
def test_a_direction_is_a_word_of_its_own(text: str, found: set[str]) -> None:
    assert directions(text) == found


def test_the_files_name_counts_only_where_nothing_else_says_it() -> None:
    assert direction("x", "f.json", ("db1 written",), "read", "") == WRITTEN
    assert direction("x", "f.json", ("db1",), "read", "") == READ


@pytest.mark.parametrize(("texts", "stem"), [((), "db"), (("read1", "written"), "db"), ((), "read-and-written")])
def test_a_direction_that_is_not_known_or_contradicted_is_refused(texts: tuple[str, ...], stem: str) -> None:
    with pytest.raises(TraceError) as refused:
        direction("x", "f.json", texts, stem, "")
    assert refused.value.code == "direction"


def test_a_volume_is_named_once() -> None:
    assert (
        volume("x", "f", ("a vol-0aaaabbbbccccdddd", "vol_0aaaabbbbccccdddd"), "vol-11112222")
        == "vol-0aaaabbbbccccdddd"
    )
    assert volume("x", "f", ("a",), "vol-11112222-read") == "vol-11112222"
    assert volume("x", "f", ("evol-11112222", "vol-1111222g"), "") == UNNAMED
    with pytest.raises(TraceError) as refused:
        volume("x", "f", ("vol-11112222 vol-33334444",), "")
    assert refused.value.code == "volume"
