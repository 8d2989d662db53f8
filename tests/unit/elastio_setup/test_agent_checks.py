"""Checks of the clock and the metadata service, and where a folder will be created."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.config.schema import parse
from elastio.errors import HostError
from elastio.host.sysfs import Sysfs
from elastio.strategy.memory import SpeedBounds
from elastio.strategy.spending import Caps
from elastio.units import GIB
from elastio_setup.agent_checks import NOT_BEFORE_WALL, clock, fastest, metadata, nearest
from elastio_setup.check_result import Machine, Verdict
from tests.simulated import machine
from tests.values import POLICY


@pytest.mark.parametrize(
    ("wall", "answer", "verdict", "code"),
    [
        (NOT_BEFORE_WALL + 1, "yes\n", Verdict.OK, ""),
        (NOT_BEFORE_WALL + 1, "no\n", Verdict.WARN, "unsynchronized"),
        (NOT_BEFORE_WALL + 1, None, Verdict.WARN, "unknown"),
        (NOT_BEFORE_WALL - 1, "yes\n", Verdict.FAIL, "past"),
    ],
)
def test_judges_the_clock(wall: float, answer: str | None, verdict: Verdict, code: str, tmp_path: Path) -> None:
    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        if answer is None:
            raise HostError("timedatectl is not installed")
        return answer

    found = clock(Machine(Sysfs(tmp_path), run), wall)
    assert (found.verdict, found.code) == (verdict, code)


@pytest.mark.parametrize(
    ("most_mb_s", "size_bytes", "code"),
    [(None, GIB, None), (990.0, GIB, ""), (991.0, GIB, "refused"), (80.0, GIB + 1, "cache.max_size_gib")],
)
def test_says_whether_the_fastest_cache_that_may_be_learned_is_sold(
    most_mb_s: float | None, size_bytes: int, code: str | None
) -> None:
    """The simulated cloud sells 1000 MB/s and whole GiB, and the flush has 10 MB/s."""
    bounds = None if most_mb_s is None else SpeedBounds(30.0, 25.0, most_mb_s)
    policy = replace(POLICY, bandwidth=bounds, drain_bandwidth_mb_s=10.0, caps=Caps(max_size_bytes=size_bytes))
    found = fastest(machine(()).world.provider, policy)
    assert [each.code for each in found] == ([] if code is None else [code])
    assert all((each.verdict is Verdict.OK) == (not code) for each in found)


def rule(*expressions: object) -> dict[str, object]:
    return {"rule": {"family": "inet", "table": "own", "chain": "output", "expr": list(expressions)}}


def chain(**more: str) -> dict[str, object]:
    return {"chain": {"family": "inet", "table": "own", "name": "output", **more}}


def match(left: object, operator: str, right: object) -> dict[str, object]:
    return {"match": {"op": operator, "left": left, "right": right}}


SERVICE = match({"payload": {"protocol": "ip", "field": "daddr"}}, "==", "169.254.169.254")
NOT_ROOT = match({"meta": {"key": "skuid"}}, "!=", 0)


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ([rule(NOT_ROOT, SERVICE, {"drop": None})], Verdict.OK),
        ([rule(SERVICE, NOT_ROOT, {"reject": {}})], Verdict.OK),
        ([rule(NOT_ROOT, SERVICE, {"accept": None})], Verdict.WARN),
        ([rule(NOT_ROOT, {"drop": None}), rule(SERVICE, {"drop": None})], Verdict.WARN),
        ([rule(match({"meta": {"key": "skuid"}}, "==", 0), SERVICE, {"drop": None})], Verdict.WARN),
        ([rule(match({"meta": {"key": "skuid"}}, "!=", 1000), SERVICE, {"drop": None})], Verdict.WARN),
        ([chain(), rule(NOT_ROOT, SERVICE, {"drop": None})], Verdict.WARN),
        ([chain(hook="forward"), rule(NOT_ROOT, SERVICE, {"drop": None})], Verdict.WARN),
        ([chain(hook="output"), rule(NOT_ROOT, SERVICE, {"drop": None})], Verdict.OK),
        ([{"metainfo": {"version": "1.0.6"}}], Verdict.WARN),
        (None, Verdict.WARN),
    ],
)
def test_warns_where_any_process_reaches_the_role_of_the_instance(
    rules: list[object] | None, verdict: Verdict, tmp_path: Path
) -> None:
    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        if rules is None:
            raise HostError("nft is not installed")
        return json.dumps({"nftables": rules})

    given = {
        "device": {"backing_uuid": "58c00623-0529-4a44-9474-dabb02496928", "bandwidth_mb_s": 33.0},
        "cache": {"bandwidth_mb_s": 128.0, "initial_size_gib": 4.0},
    }
    machine = Machine(Sysfs(tmp_path), run)
    found = metadata(machine, parse({**given, "provider": {"name": "aws"}}))
    assert [f.verdict for f in found] == [verdict]
    assert metadata(machine, parse({**given, "provider": {"name": "sim"}})) == []


def test_a_folder_that_does_not_exist_is_created_in_the_nearest_one(tmp_path: Path) -> None:
    assert nearest(tmp_path / "a" / "b") == tmp_path
    assert nearest(Path("/no-such-folder-at-all")) == Path("/")
