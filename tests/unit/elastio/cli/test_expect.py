"""`elastio expect`."""

from __future__ import annotations

import pytest

from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted
from elastio.units import GIB, MIB

from .conftest import FakeAgent, Shell


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (("--in", "5m", "--size", "4G"), {"seconds": 300, "size_bytes": 4 * GIB}),
        (("--in", "90"), {"seconds": 90}),
        (("--cancel",), {}),
    ],
)
def test_a_burst_is_announced_or_all_are_forgotten(
    arguments: tuple[str, ...], fields: dict[str, int], agent: FakeAgent, elastio: Shell
) -> None:
    agent.replies["expect"] = accepted("a burst is expected")
    result = elastio("expect", *arguments)
    assert (result.exit_code, result.stdout) == (Exit.OK, "a burst is expected\n")
    assert agent.asked == [{"version": 1, "command": "expect", **fields}]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--size", "4G"),
        ("--cancel", "--in", "5m"),
        ("--cancel", "--size", "4G"),
        ("--in", "0.4s"),
        ("--in", "8d"),
        ("--in", "soon"),
        ("--in", "5m", "--size", "0"),
        ("--in", "5m", "--size", "-4G"),
        ("--in", "5m", "--size", "4X"),
        ("--in", "5m", "--size", "G"),
        ("--in", "5m", "--size", "inf"),
        ("--in", "5m", "--size", "9" * 400),
    ],
)
def test_what_cannot_be_announced_is_wrong_usage_and_asks_nothing(
    arguments: tuple[str, ...], agent: FakeAgent, elastio: Shell
) -> None:
    assert elastio("expect", *arguments).exit_code == Exit.USAGE
    assert agent.asked == []


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("4", 4 * GIB), ("4g", 4 * GIB), ("512MiB", 512 * MIB), ("1.5 GB", 3 * GIB // 2)]
)
def test_sizes_are_in_binary_units(text: str, size_bytes: int, agent: FakeAgent, elastio: Shell) -> None:
    agent.replies["expect"] = accepted("")
    assert elastio("expect", "--in", "5m", "--size", text).exit_code == Exit.OK
    assert agent.asked[0]["size_bytes"] == size_bytes
