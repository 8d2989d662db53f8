"""`elastio boost --dry-run`: the quote of a boost, from the running agent or the ledger, and no call that writes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.accounting.ledger import Ledger
from elastio.control.exit_codes import Exit
from elastio.control.status import OthersPart
from elastio.core.model import Quote, VolumeSpec
from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio.strategy.spending import Caps, Spend, Spent
from elastio.units import GIB
from elastio_cli import dry_run
from elastio_cli.dry_run import BoostQuote

from .conftest import FakeAgent, Golden, Shell, published, standing
from .machine import LEAST, UUID
from .test_status import CYCLE, QUOTE

SOURCE = """
from dataclasses import replace
from pathlib import Path
from elastio.core.model import VolumeSpec
from elastio.strategy.tariff import Tariff, unpriced
GIB = 2**30
class Toy:
    def __init__(self, settings):
        self.settings = settings
    def __getattr__(self, name):
        with Path(self.settings["calls"]).open("a") as calls:
            print(name, file=calls)
        return self._quote
    def _quote(self, spec):
        sold = replace(spec, size_bytes=-(-spec.size_bytes // (4 * GIB)) * 4 * GIB)
        if not self.settings.get("priced", True):
            return unpriced(sold, "EUR", 60.0, "no price is known here")
        return Tariff("EUR", per_gib_hour=0.001, minimum_s=60.0, source="a price list").quote(sold)
def open_provider(settings, uuid):
    return Toy(settings)
"""
Configure = Callable[..., None]


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The names of the provider's methods that were called, one a line."""
    path = tmp_path / "calls"
    path.touch()
    return path


@pytest.fixture
def configure(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Writes a configuration for a provider that notes what is called; it sells steps of 4 GiB."""
    site = tmp_path / "site"
    (site / "quoting-1.0.dist-info").mkdir(parents=True)
    (site / "quoting-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: quoting\nVersion: 1.0\n")
    (site / "quoting-1.0.dist-info" / "entry_points.txt").write_text(
        "[elastio.providers]\ntoy = quotingcloud:open_provider\n"
    )
    (site / "quotingcloud.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "quotingcloud", raising=False)

    def write(caps: str = "", settings: str = "", cache: str = "") -> None:
        toy = f'[provider.toy]\ncalls = "{calls}"\n{settings}\n'
        state = f'[agent]\nstate_dir = "{tmp_path}"\n[caps]\n{caps}\n'
        least = LEAST.replace("[provider]", f"{cache}\n[provider]")
        (tmp_path / "elastio.toml").write_text(least + toy + state)

    write()
    return write


def test_a_quote_is_asked_for_and_nothing_else(configure: Configure, calls: Path, elastio: Shell) -> None:
    result = elastio("boost", "--dry-run")
    assert result.exit_code == Exit.OK, result.output
    assert calls.read_text().split() == ["quote"]
    assert result.stdout.splitlines()[-1] == "nothing was bought"


def test_the_running_agent_is_asked_for_its_status_only(configure: Configure, agent: FakeAgent, elastio: Shell) -> None:
    agent.statuses = [published(standing(Phase.IDLE, learned_size_bytes=6 * GIB))]
    shown = json.loads(elastio("boost", "--dry-run", "--json").stdout)
    assert [message["command"] for message in agent.asked] == ["status"]
    assert shown["size_bytes"] == 8 * GIB  # what is sold for the learned 6 GiB
    assert (shown["price_per_hour"], shown["currency"]) == (pytest.approx(0.008), "EUR")
    assert shown["least_cost"] == pytest.approx(0.008 * shown["least_s"] / 3600)
    assert shown["most_today"] == pytest.approx(0.008 * shown["left_today_s"] / 3600)
    assert 0 < shown["left_today_s"] <= 86_400


def test_a_quote_is_for_the_learned_bandwidth(configure: Configure, agent: FakeAgent, elastio: Shell) -> None:
    fixed = published(standing(Phase.IDLE))
    shown = []
    for status in (fixed, replace(fixed, learned_bandwidth_mb_s=200.0)):
        agent.statuses = [status]
        shown.append(json.loads(elastio("boost", "--dry-run", "--json").stdout)["bandwidth_mb_s"])
    assert shown[0] < 200 <= shown[1]


def test_without_an_agent_the_ledger_knows_what_was_learned_and_spent(
    configure: Configure, elastio: Shell, tmp_path: Path
) -> None:
    configure(caps="max_boosts_per_month = 1")
    assert json.loads(elastio("boost", "--dry-run", "--json").stdout)["size_bytes"] == 12 * GIB  # of the initial 10
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_learned_size(UUID, 2 * GIB)
    assert json.loads(elastio("boost", "--dry-run", "--json").stdout)["size_bytes"] == 4 * GIB
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        now = time.time()
        ledger.record(replace(CYCLE, quote=QUOTE, started_wall=now, opened_wall=now, closed_wall=now), 0.0)
    result = elastio("boost", "--dry-run")
    assert result.exit_code == Exit.REFUSED
    assert "caps.max_boosts_per_month" in result.stderr


@pytest.mark.parametrize(
    ("caps", "key"),
    [
        ("max_boosts_per_day = 2", "caps.max_boosts_per_day"),
        ("max_cost_per_day = 0.1", "caps.max_cost_per_day"),
        ("max_agbs_per_day = 1240", "caps.max_agbs_per_day"),
    ],
)
def test_a_cap_that_forbids_the_boost_is_named(
    configure: Configure, agent: FakeAgent, elastio: Shell, caps: str, key: str
) -> None:
    """Two boosts, 1234.5 AGBs and 0.12 were spent today."""
    configure(caps=caps)
    result = elastio("boost", "--dry-run", "--size", "3")
    assert result.exit_code == Exit.REFUSED
    assert key in result.stdout
    assert json.loads(elastio("boost", "--dry-run", "--json").stdout)["refused"] != ""


def test_the_least_cost_is_of_the_time_that_the_agent_has_measured(
    configure: Configure, agent: FakeAgent, elastio: Shell
) -> None:
    configure(caps="max_cost_per_month = 3")
    shown = json.loads(elastio("boost", "--dry-run", "--json").stdout)
    seen = published(standing(Phase.IDLE))
    measured = 36_000.0
    agent.statuses = [replace(seen, least_boost_s=measured)]
    slow = json.loads(elastio("boost", "--dry-run", "--json").stdout)
    assert (shown["least_s"], slow["least_s"]) == (seen.least_boost_s, measured)
    assert slow["least_cost"] == pytest.approx(slow["price_per_hour"] * measured / 3600)
    agent.statuses = [replace(seen, least_boost_s=3600 * 4 / slow["price_per_hour"])]
    assert elastio("boost", "--dry-run").exit_code == Exit.REFUSED


def test_what_other_devices_have_spent_counts_under_shared_caps(
    configure: Configure, agent: FakeAgent, elastio: Shell
) -> None:
    configure(caps="max_boosts_per_day = 4")
    assert elastio("boost", "--dry-run").exit_code == Exit.OK
    seen = published(standing(Phase.IDLE))
    agent.statuses = [replace(seen, spend=replace(seen.spend, others=OthersPart(boosts=2)))]
    result = elastio("boost", "--dry-run")
    assert (result.exit_code, "caps.max_boosts_per_day" in result.stdout) == (Exit.REFUSED, True)


def test_what_is_sold_must_not_be_larger_than_the_cap(configure: Configure, elastio: Shell) -> None:
    configure(cache="max_size_gib = 11")  # 10 GiB are wanted, 12 GiB are sold
    result = elastio("boost", "--dry-run")
    assert result.exit_code == Exit.REFUSED
    assert "cache.max_size_gib" in result.stderr


def test_an_unknown_price_is_unknown_and_is_refused_under_a_cap_on_cost(configure: Configure, elastio: Shell) -> None:
    configure(settings="priced = false")
    shown = json.loads(elastio("boost", "--dry-run", "--json").stdout)
    assert (shown["price_per_hour"], shown["least_cost"], shown["most_today"]) == (None, None, None)
    configure(settings="priced = false", caps="max_cost_per_month = 5")
    assert elastio("boost", "--dry-run").exit_code == Exit.REFUSED


def test_the_simulated_machine_is_quoted_without_a_configuration(agent: FakeAgent, elastio: Shell) -> None:
    assert elastio("boost", "--dry-run").exit_code == Exit.CONFIG
    seen = published(standing(Phase.IDLE))
    agent.statuses = [replace(seen, agent=replace(seen.agent, cloud="sim"))]
    shown = json.loads(elastio("boost", "--dry-run", "--json").stdout)
    assert (shown["size_bytes"], shown["bandwidth_mb_s"]) == (4 * GIB, 161.0)


@pytest.mark.parametrize("options", [("--dry-run", "--wait"), ("--json",)])
def test_options_that_contradict_each_other_are_wrong_usage(elastio: Shell, options: tuple[str, ...]) -> None:
    assert elastio("boost", *options).exit_code == Exit.USAGE


def quoted(caps: Caps, cost_today: float = 0.12) -> BoostQuote:
    """A quiet morning: 0.0236 USD an hour, and 33,660 s left of the day."""
    quote = Quote(VolumeSpec(10 * GIB, 560.98816, 3000), "USD", 0.0236, 60.0, "a price list; us-east-1; 2026-11-20")
    spend = Spend(2, 1234.5, cost_today, month=Spent(31, 40000.0, 1.25))
    return BoostQuote(quote, Policy(60.0, 500.0, 60.0, caps=caps), spend, 90.0, 33_660.0, "")


@pytest.mark.parametrize(
    ("caps", "most"),
    [
        (Caps(), 0.22066),
        (Caps(max_cost_per_day=0.2), 0.08),
        (Caps(max_cost_per_month=1.3), 0.05),
        (Caps(max_cost_per_day=0.2, ends_boosts=False), 0.22066),
        (Caps(max_cost_per_day=0.2, max_cost_per_month=9.0), 0.08),
    ],
)
def test_the_most_that_a_boost_can_cost_ends_at_a_cap(caps: Caps, most: float) -> None:
    assert quoted(caps).most_today == pytest.approx(most)


def test_text(golden: Golden) -> None:
    found = quoted(Caps(max_boosts_per_day=10, max_cost_per_day=1.0, max_cost_per_month=20.0))
    unknown = replace(
        found,
        quote=replace(found.quote, price_known=False, price_source="no price is known for me-central-1"),
        policy=replace(found.policy, caps=Caps(), drain_bandwidth_mb_s=0.0),
        left_s=60.0,
    )
    shown = [f"{name:<14}{text}\n" for each in (found, unknown) for name, text in dry_run.rows(each)]
    golden("boost_dry_run.txt", "".join(shown))
