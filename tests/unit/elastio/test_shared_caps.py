"""The statements of agents that share caps: one lock, whole files, and a sum that is never passed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from elastio.accounting.shared_caps import SharedCaps
from elastio.core.actions import CreateVolume
from elastio.core.model import Quote, VolumeSpec
from elastio.errors import LedgerError, RefusedError, TransientError
from elastio.strategy.spending import Limits
from elastio.units import GB
from tests.fixtures.errors import refused
from tests.fixtures.synced import syncs

WALL = 1_790_000_000.0
SPEC = VolumeSpec(GB, 1.0)  # one AGBs a second
QUOTE = Quote(SPEC, "USD", 3600.0, 60.0, "a list")  # one USD a second, sixty at the least
NONE = (None, None, None)
ONE_BOOST = Limits(*(1, None, None), *NONE)


def account(folder: Path, name: str) -> SharedCaps:
    return SharedCaps(folder, name, wall=lambda: WALL, zone=lambda: UTC)


def purchase(name: str, limits: Limits, least_s: float = 100.0) -> CreateVolume:
    return CreateVolume(f"token-{name}", SPEC, GB, least_s=least_s, shared=limits)


@pytest.mark.parametrize(
    ("limits", "room"),
    [
        (ONE_BOOST, 1),
        (Limits(*NONE, *(2, None, None)), 2),
        (Limits(*(None, 350.0, None), *NONE), 3),
        (Limits(*NONE, *(None, None, 450.0)), 4),
        (Limits(*NONE, *NONE), 12),
    ],
)
def test_of_many_that_reserve_at_once_only_as_many_succeed_as_there_is_room_for(
    limits: Limits, room: int, tmp_path: Path
) -> None:
    def reserve(number: int) -> bool:
        try:
            return account(tmp_path, f"{number}").reserve(purchase(f"{number}", limits), QUOTE)
        except RefusedError:
            return False

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(reserve, range(12))) == room


def test_a_statement_is_durable_under_its_name_before_anything_is_bought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = syncs(monkeypatch)
    account(tmp_path, "a").reserve(purchase("a", ONE_BOOST), QUOTE)
    assert seen == ["a.json.new", "a.json.new -> a.json", tmp_path.name]


def test_a_refusal_names_the_cap_and_changes_nothing(tmp_path: Path) -> None:
    account(tmp_path, "a").reserve(purchase("a", ONE_BOOST), QUOTE)
    with refused(RefusedError, "caps.max_boosts_per_day"):
        account(tmp_path, "b").reserve(purchase("b", ONE_BOOST), QUOTE)
    assert account(tmp_path, "b").own() is None


def test_a_whole_step_of_the_cloud_is_reserved(tmp_path: Path) -> None:
    limits = Limits(*(None, None, 350.0), *NONE)
    hourly = replace(QUOTE, step_s=3600.0)
    with refused(RefusedError, "caps.max_cost_per_day"):
        account(tmp_path, "a").reserve(purchase("a", limits), hourly)
    assert account(tmp_path, "a").reserve(purchase("a", limits), QUOTE)


def test_the_same_purchase_is_reserved_once(tmp_path: Path) -> None:
    first = account(tmp_path, "a")
    assert [first.reserve(purchase("a", ONE_BOOST), QUOTE) for _ in range(2)] == [True, False]


def test_what_was_not_bought_is_free_again(tmp_path: Path) -> None:
    first, second = account(tmp_path, "a"), account(tmp_path, "b")
    first.reserve(purchase("a", ONE_BOOST), QUOTE)
    first.cancel("token-b")
    with refused(RefusedError, "caps.max_boosts_per_day"):
        second.reserve(purchase("b", ONE_BOOST), QUOTE)
    first.cancel("token-a")
    assert second.reserve(purchase("b", ONE_BOOST), QUOTE)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 2}', '{"version": 1, "device": 3}'])
def test_a_statement_that_cannot_be_read_counts_as_no_room(text: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(text)
    with refused(TransientError, "caps.shared"):
        account(tmp_path, "a").reserve(purchase("a", ONE_BOOST), QUOTE)
    with refused(LedgerError, "shared.unreadable"):
        account(tmp_path, "a").others()


def test_the_loop_does_not_wait_for_the_lock(tmp_path: Path) -> None:
    holder, other = account(tmp_path, "a"), account(tmp_path, "b")
    with holder._locked(0.0), refused(LedgerError, "shared.locked"):
        other.put(lambda own: own or pytest.fail("it has none"), None, WALL)


def test_an_agent_that_shares_no_more_leaves_no_statement(tmp_path: Path) -> None:
    first = account(tmp_path, "a")
    first.reserve(purchase("a", ONE_BOOST), QUOTE)
    first.withdraw()
    assert account(tmp_path, "b").others() == ()
