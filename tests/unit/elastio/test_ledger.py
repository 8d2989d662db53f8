"""The ledger: idempotent rows, bills, steps across reboots, device spans."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from elastio.accounting.ledger import GAP_S, Ledger
from elastio.accounting.rows import CycleRow
from elastio.core.cycle import CacheUse, Cycle, Failure, FailureKind, Timestamps, Trigger
from elastio.core.model import Quote, Serial, Volume, VolumeId, VolumeSpec, VolumeState
from elastio.strategy.spending import Spend

GB = 10**9
BOOT = 1_770_000_000.0  # wall clock minus CLOCK_BOOTTIME
START = BOOT + 1000.0
QUOTE = Quote(VolumeSpec(12 * GB, 128.0), "USD", 3.6, 60.0, "a price list")  # 0.001 USD a second
DECIDED = Cycle(
    "token-1", Trigger.LOAD, VolumeSpec(10 * GB, 125.0), 1000.0, START, times=Timestamps(crossed=999.5, decided=1000.0)
)


def volume(token: str = "token-1", uuid: str = "dev") -> Volume:
    return Volume(VolumeId("vol-1"), Serial("vol1"), VolumeState.ATTACHED, 12 * GB, 128.0, token, uuid, START + 1)


BOUGHT = replace(
    DECIDED, volume_id=VolumeId("vol-1"), serial=Serial("vol1"), volume=volume(), quote=QUOTE, opened_wall=START + 1
).stamped(created=1002.0)
BOOSTED = replace(BOUGHT, use=CacheUse(5 * GB, 60, written_through_bytes=GB)).stamped(
    asked=1002.5, appeared=1003.5, formatted=1003.625, registered=1003.75, boosted=1004.0
)
CLOSED = replace(BOOSTED, closed_wall=START + 101).stamped(
    quiet=1060.0, clean=1090.0, detached=1094.0, released=1095.0, deleted=1101.0
)


def rows(ledger: Ledger) -> tuple[CycleRow, ...]:
    return ledger.cycles(0.0, START + 10**7)


def only(ledger: Ledger) -> CycleRow:
    (row,) = rows(ledger)
    return row


# --- cycles ----------------------------------------------------------------------------------------------


def test_row_follows_the_life_of_a_cycle(ledger: Ledger) -> None:
    ledger.record(DECIDED, BOOT)
    assert (only(ledger).opened_wall, only(ledger).provisioned_size_bytes, only(ledger).is_open) == (
        None,
        10 * GB,
        False,
    )
    ledger.record(BOUGHT, BOOT)
    assert only(ledger).is_open
    ledger.record(replace(CLOSED, quote=None), BOOT)
    row = only(ledger)
    assert (row.wanted_size_bytes, row.provisioned_size_bytes, row.bandwidth_mb_s) == (10 * GB, 12 * GB, 128.0)
    assert (row.started_wall, row.opened_wall, row.closed_wall) == (START, START + 1, START + 101)
    assert (row.currency, row.price_per_hour, row.minimum_s) == ("USD", 3.6, 60.0)
    assert (row.peak_dirty_bytes, row.peak_in_use_percent, row.written_through_bytes) == (5 * GB, 60, GB)
    assert (row.device_uuid, row.volume_id, row.trigger, row.is_open) == ("dev", "vol-1", "load", False)


def test_price_that_nobody_knows_is_not_free(ledger: Ledger) -> None:
    ledger.record(replace(BOUGHT, quote=replace(QUOTE, price_per_hour=0.0, price_known=False)), BOOT)
    assert only(ledger).price_per_hour is None


def test_without_a_quote_nothing_is_known_of_the_price(ledger: Ledger) -> None:
    ledger.record(replace(CLOSED, quote=None), BOOT)
    row = only(ledger)
    assert (row.currency, row.price_per_hour, row.minimum_s, row.step_s) == ("", None, 0.0, 0.0)


def test_replay_after_a_crash_ends_in_the_same_row(ledger: Ledger) -> None:
    for cycle in (DECIDED, BOUGHT, BOOSTED, CLOSED):
        ledger.record(cycle, BOOT)
    first = only(ledger)
    for cycle in (CLOSED, BOUGHT, BOOSTED, CLOSED):
        ledger.record(replace(cycle, quote=None), BOOT)
    assert only(ledger) == first


def test_cycle_picked_up_by_its_tags_keeps_what_the_row_knew(ledger: Ledger) -> None:
    ledger.record(BOOSTED, BOOT)
    spec = VolumeSpec(12 * GB, 128.0)
    orphan = Cycle("token-1", Trigger.ORPHAN, spec, 50.0, START + 1, volume=volume(), opened_wall=START + 1)
    ledger.record(orphan.stamped(decided=50.0, created=50.0, boosted=50.0), BOOT + 9000)
    row = only(ledger)
    assert (row.trigger, row.started_wall, row.wanted_size_bytes) == ("load", START, 10 * GB)
    assert (row.price_per_hour, row.peak_dirty_bytes) == (3.6, 5 * GB)
    assert (row.steps.create_s, row.steps.boost_s) == (2.0, 4.5)


def test_sold_size_survives_a_record_without_the_volume(ledger: Ledger) -> None:
    ledger.record(BOUGHT, BOOT)
    ledger.record(replace(BOUGHT, volume=None, quote=None), BOOT)
    assert (only(ledger).provisioned_size_bytes, only(ledger).device_uuid) == (12 * GB, "dev")


def test_deletion_that_the_cloud_took_back_runs_the_bill_on(ledger: Ledger) -> None:
    ledger.record(CLOSED, BOOT)
    ledger.record(replace(CLOSED, closed_wall=None, quote=None), BOOT)
    assert only(ledger).is_open


def test_failure_is_kept(ledger: Ledger) -> None:
    ledger.record(replace(DECIDED, failure=Failure(FailureKind.ERROR, "quota reached")), BOOT)
    ledger.record(DECIDED, BOOT)
    assert (only(ledger).failure, only(ledger).failure_kind) == ("quota reached", "error")


def test_the_kind_of_a_failure_stays_so_that_counts_of_it_never_fall(ledger: Ledger) -> None:
    ledger.record(DECIDED, BOOT)
    assert only(ledger).failure_kind == ""
    for kind in (FailureKind.TIMED_OUT, FailureKind.WITHDRAWN):
        ledger.record(replace(DECIDED, failure=Failure(kind, kind.value)), BOOT)
    assert (only(ledger).failure, only(ledger).failure_kind) == ("withdrawn", "timed out")
    assert only(ledger).is_refused


def test_cycles_of_a_period_are_those_that_touch_it(ledger: Ledger) -> None:
    ledger.record(CLOSED, BOOT)  # START .. START + 101
    ledger.record(
        replace(DECIDED, token="refused", started_wall=START + 500, failure=Failure(FailureKind.ERROR, "no")), BOOT
    )
    ledger.record(replace(BOUGHT, token="open", started_wall=START + 900, opened_wall=START + 901), BOOT)

    def tokens(since: float, until: float) -> list[str]:
        return [c.token for c in ledger.cycles(START + since, START + until)]

    assert tokens(-10, 0) == []
    assert tokens(-10, 1) == ["token-1"]
    assert tokens(100, 450) == ["token-1"]
    assert tokens(101, 450) == []
    assert tokens(450, 2000) == ["refused", "open"]
    assert tokens(5000, 6000) == ["open"]


def test_bill_of_a_volume_that_disappeared_is_ended(ledger: Ledger) -> None:
    ledger.record(BOUGHT, BOOT)
    ledger.record(replace(BOUGHT, token="there", volume=volume("there")), BOOT)
    ledger.record(replace(BOUGHT, token="else", volume=volume("else", "other")), BOOT)
    ledger.record(replace(CLOSED, token="done"), BOOT)
    assert ledger.close_unlisted("dev", {"there"}, START + 500) == ("token-1",)
    by_token = {c.token: c for c in rows(ledger)}
    assert by_token["token-1"].closed_wall == START + 500
    assert by_token["token-1"].failure
    assert by_token["token-1"].failure_kind == "lost"
    assert by_token["there"].is_open
    assert by_token["else"].is_open
    assert by_token["done"].closed_wall == START + 101


# --- steps -----------------------------------------------------------------------------------------------


BY_HAND = replace(CLOSED, trigger=Trigger.OPERATOR, times=replace(CLOSED.times, crossed=None))
OLD_MARKS = replace(CLOSED, times=replace(CLOSED.times, crossed=None, asked=None, registered=None))
BEFORE, BETWEEN = ("decide_s", "attach_volume_s", "appear_s"), ("register_s", "attach_set_s", "own_s")
STEPS: dict[str, tuple[Cycle, dict[str, float | None]]] = {
    "in the cloud": (CLOSED, {"decide_s": 0.5, "create_s": 2.0, "attach_volume_s": 0.5, "appear_s": 1.0}),
    "on the host": (CLOSED, {"format_s": 0.125, "register_s": 0.125, "attach_set_s": 0.25}),
    "all but those of the cloud": (CLOSED, {"own_s": 0.5 + 0.125 + 0.125 + 0.25}),
    "of the boost": (CLOSED, {"boost_s": 4.5, "flush_s": 30.0, "attached_s": 90.0}),
    "from the decision, where no sample asked": (BY_HAND, {"decide_s": None, "boost_s": 4.0, "own_s": 0.5}),
    "that the first release marked": (OLD_MARKS, {"create_s": 2.0, "format_s": 0.125, "boost_s": 4.0}),
    "that it did not mark": (OLD_MARKS, dict.fromkeys((*BEFORE, *BETWEEN))),
    "with contradicting clocks": (replace(BOUGHT, times=Timestamps(decided=1000.0, created=10.0)), {"create_s": None}),
    "of an orphan that nobody bought": (
        replace(CLOSED, trigger=Trigger.ORPHAN),
        {"create_s": None, "flush_s": 30.0},
    ),
}


@pytest.mark.parametrize("steps", STEPS)
def test_steps_are_the_differences_of_the_timestamps(steps: str, ledger: Ledger) -> None:
    of, expected = STEPS[steps]
    ledger.record(of, BOOT)
    shown = only(ledger).steps
    assert {name: getattr(shown, name) for name in expected} == expected


def test_steps_ignore_a_corrected_wall_clock(ledger: Ledger) -> None:
    ledger.record(BOOSTED, BOOT)
    ledger.record(CLOSED, BOOT - 7.0)
    assert only(ledger).steps.attached_s == 90.0


def test_steps_span_a_reboot(ledger: Ledger) -> None:
    ledger.record(BOOSTED, BOOT)  # boosted at BOOT + 1004
    after = replace(BOOSTED, closed_wall=START + 3000).stamped(quiet=20.0, clean=50.0, deleted=70.0)
    ledger.record(after, BOOT + 2000)
    steps = only(ledger).steps
    assert (steps.attach_set_s, steps.flush_s) == (0.25, 30.0)
    assert steps.attached_s == 2070.0 - 1004.0


def test_flush_is_the_last_one(ledger: Ledger) -> None:
    ledger.record(CLOSED, BOOT)
    ledger.record(replace(CLOSED, times=replace(CLOSED.times, clean=None)), BOOT)
    assert only(ledger).steps.flush_s is None
    ledger.record(replace(CLOSED, times=replace(CLOSED.times, quiet=1200.0, clean=1205.0)), BOOT)
    assert only(ledger).steps.flush_s == 5.0


def test_timestamps_are_wall_clock_also_after_a_reboot(ledger: Ledger) -> None:
    ledger.record(BOOSTED, BOOT)
    ledger.record(replace(BOOSTED, closed_wall=START + 3000).stamped(quiet=20.0), BOOT + 2000)
    times = ledger.timestamps("token-1")
    assert (times["decided"], times["boosted"], times["quiet"]) == (BOOT + 1000, BOOT + 1004, BOOT + 2020)
    assert ledger.timestamps("another") == {}


# --- spend -----------------------------------------------------------------------------------------------


def test_open_bill_runs_to_now_and_owes_the_shortest_time_at_once(ledger: Ledger) -> None:
    ledger.record(BOUGHT, BOOT)
    early = ledger.spend_since(START - 100, START + 11)
    assert [early.agbs, early.currency] == pytest.approx([128 * 12 * 10, 0.060])
    late = ledger.spend_since(START - 100, START + 201)
    assert [late.agbs, late.currency] == pytest.approx([128 * 12 * 200, 0.200])


def test_a_month_of_boosts_is_billed_as_a_cloud_of_begun_hours_bills_them(ledger: Ledger) -> None:
    """720 boosts of up to 100 minutes in 30 days, by a calculation of its own, to six places."""
    price, day_s = Fraction(36, 10_000), 86_400
    begins = [3600 * n + 7 * n % 600 for n in range(720)]
    lasted = [60 + 311 * n % 6000 for n in range(720)]
    quote = Quote(VolumeSpec(12 * GB, 128.0), "EUR", float(price), 60.0, "a price list", step_s=3600.0)
    for n, (begun, seconds) in enumerate(zip(begins, lasted, strict=True)):
        opened = START + begun
        each = replace(CLOSED, token=f"token-{n}", quote=quote, started_wall=opened, opened_wall=opened)
        ledger.record(replace(each, closed_wall=opened + seconds), BOOT)
    by_hand = sum(price * -(-seconds // 3600) for seconds in lasted)
    end = START + 40 * day_s
    assert ledger.spent_between(START, end).currency == pytest.approx(float(by_hand), abs=1e-6)
    days = [ledger.spent_between(START + n * day_s, START + (n + 1) * day_s).currency for n in range(40)]
    assert sum(days) == pytest.approx(float(by_hand), abs=1e-6)
    # An hour is owed when it begins: on the day of its first second.
    first = [
        begun + 3600 * n for begun, seconds in zip(begins, lasted, strict=True) for n in range(-(-seconds // 3600))
    ]
    assert days[3] == pytest.approx(float(price * sum(3 * day_s <= at < 4 * day_s for at in first)), abs=1e-6)


def test_spend_is_clipped_to_the_period(ledger: Ledger) -> None:
    ledger.record(CLOSED, BOOT)
    spend = ledger.spend_since(START + 91, START + 5000)
    assert spend.boosts == 0
    assert [spend.agbs, spend.currency] == pytest.approx([128 * 12 * 10, 0.010])
    assert ledger.spend_since(START + 101, START + 5000) == Spend()


def test_refused_boosts_and_orphans_do_not_use_up_the_cap_on_boosts(ledger: Ledger) -> None:
    ledger.record(replace(DECIDED, token="refused", failure=Failure(FailureKind.ERROR, "quota reached")), BOOT)
    ledger.record(replace(CLOSED, token="orphan", trigger=Trigger.ORPHAN), BOOT)
    ledger.record(replace(DECIDED, token="under way"), BOOT)
    spend = ledger.spend_since(START - 100, START + 5000)
    assert spend.boosts == 1
    assert spend.agbs == pytest.approx(128 * 12 * 100)


@pytest.mark.parametrize("back_s", [3600.0, 86_000.0])
def test_a_clock_that_is_set_back_does_not_give_back_what_was_spent(ledger: Ledger, back_s: float) -> None:
    ledger.record(CLOSED, BOOT)
    now = START + 200
    assert ledger.spend_since(now - 86_400, now - back_s) == ledger.spend_since(now - 86_400, now)


def test_a_clock_that_was_years_ahead_fills_no_day_up(ledger: Ledger) -> None:
    ledger.record(CLOSED, BOOT)
    assert ledger.spend_since(START - 200_000, START - 86_500) == Spend()


# --- the device ------------------------------------------------------------------------------------------


# When the device was seen, and the spans that this makes, in seconds after START.
SIGHTS: dict[str, tuple[list[float], list[tuple[float, float]]]] = {
    "one span, and a small step back": ([*range(0, 600, 60), 530], [(0, 540)]),
    "another one after a long silence": ([0, GAP_S, 2 * GAP_S + 1], [(0, GAP_S), (2 * GAP_S + 1, 2 * GAP_S + 1)]),
    "a wrong clock does not swallow the time after its correction": ([0, 10**8, 60, 120], [(0, 0), (60, 120)]),
}


@pytest.mark.parametrize("case", SIGHTS)
def test_sights_of_a_device_make_spans(case: str, ledger: Ledger) -> None:
    sights, expected = SIGHTS[case]
    for after_s in sights:
        ledger.touch_device("dev", 50 * GB, 33.0, 128.0, START + after_s)
    spans = ledger.spans(0.0, START + 10**7)
    assert [(s.first_wall - START, s.last_wall - START) for s in spans] == expected
    assert {(s.size_bytes, s.backing_mb_s, s.cache_mb_s) for s in spans} == {(50 * GB, 33.0, 128.0)}


def test_changed_device_begins_a_span_without_a_gap(ledger: Ledger) -> None:
    ledger.touch_device("dev", 50 * GB, 33.0, 128.0, START)
    ledger.touch_device("dev", 80 * GB, 33.0, 128.0, START + 60)
    ledger.touch_device("dev", 80 * GB, 33.0, 128.0, START + 120)
    spans = ledger.spans(0.0, START * 2)
    assert [(s.first_wall, s.last_wall) for s in spans] == [(START, START + 60), (START + 60, START + 120)]
    assert [s.size_bytes for s in spans] == [50 * GB, 80 * GB]


def test_last_span_is_given_even_outside_the_period(ledger: Ledger) -> None:
    ledger.touch_device("dev", 50 * GB, 33.0, 128.0, START)
    ledger.touch_device("other", 50 * GB, 33.0, 128.0, START + 10)
    assert [s.device_uuid for s in ledger.spans(START + 5000, START + 6000)] == ["dev", "other"]


def test_learned_size_is_kept_per_device(path: Path) -> None:
    with Ledger(path) as ledger:
        assert ledger.learned_size("dev") is None
        ledger.set_learned_size("dev", 4 * GB)
        ledger.set_learned_size("other", 5 * GB)
        ledger.set_learned_size("dev", 6 * GB)
    with Ledger(path) as ledger:
        assert (ledger.learned_size("dev"), ledger.learned_size("other")) == (6 * GB, 5 * GB)
