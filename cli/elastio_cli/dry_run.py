"""What `elastio boost --dry-run` shows: what a boost now would buy and cost. Nothing is bought, tagged or written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastio import registry
from elastio.accounting.database import local_zone
from elastio.accounting.report import day_start, local_day, month_start, split_days
from elastio.accounting.rows import MonthToDate
from elastio.config.schema import Config
from elastio.control.protocol import UnreachableError
from elastio.control.status import Status
from elastio.core.model import Quote, VolumeSpec
from elastio.core.policy import Policy
from elastio.errors import ConfigError, ElastioError
from elastio.strategy.caps import quote_refusal, spending_refusal
from elastio.strategy.learning import next_size
from elastio.strategy.spending import Caps, Spend
from elastio.units import format_duration, format_size
from elastio_cli.app import App, config_of_simulator
from elastio_cli.ledger import open_ledger

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class BoostQuote:
    """What a boost now would buy, and for how long its volume would exist at the least (`least_boost_s`).

    `left_s`: until local midnight. `refused`: the cap that forbids it, or empty.
    """

    quote: Quote
    policy: Policy
    spend: Spend
    least_boost_s: float
    left_s: float
    refused: str

    @property
    def least_s(self) -> float:
        """The shortest time that is billed."""
        return self.quote.billing.billed_s(self.least_boost_s)

    def cost(self, seconds: float) -> float | None:
        """The bill of a volume that exists for so long; None: the price is not known."""
        quote = self.quote
        return quote.price_per_hour * quote.billing.billed_s(seconds) / 3600 if quote.price_known else None

    @property
    def most_today(self) -> float | None:
        """The bill if the cache is kept until midnight, or until a cap on cost ends the boost; None: not known."""
        most, left = self.cost(max(self.left_s, self.least_s)), self.policy.caps.cost_left(self.spend)
        if most is None or left is None or not self.policy.caps.ends_boosts:
            return most
        return max(self.cost(self.least_s) or 0.0, min(most, left))


def ask(app: App, size_bytes: int | None, now_wall: float) -> BoostQuote:
    """Ask the provider for a quote of the size, or of the one that the agent would buy.

    What was learned and spent comes from the running agent, else from the ledger. Raises ElastioError.
    """
    try:
        status: Status | None = app.client().status()
    except UnreachableError as error:
        if error.code != "socket.closed":
            raise
        status = None
    config = config_of(app, status)
    policy = config.policy()
    least_s = policy.least_boost_s if status is None or status.least_boost_s is None else status.least_boost_s
    if status is not None:
        learned, spend = status.learned_size_bytes, status.spend.spend
        if status.learned_bandwidth_mb_s is not None:
            policy = replace(policy, cache_bandwidth_mb_s=status.learned_bandwidth_mb_s)
    else:
        learned, spend = _recorded(app, config.device.backing_uuid, now_wall)
    size = next_size(learned, policy) if size_bytes is None else size_bytes
    provider = registry.open_provider(config.provider.name, config.provider.settings, config.device.backing_uuid)
    quote = provider.quote(VolumeSpec(size, policy.bought_bandwidth_mb_s, policy.cache_iops))
    zone = local_zone()
    left_s = split_days(now_wall, now_wall + 2 * DAY_S, zone)[local_day(now_wall, zone)][1] - now_wall
    return BoostQuote(quote, policy, spend, least_s, left_s, _why_not(quote, spend, policy, least_s))


def _why_not(quote: Quote, spend: Spend, policy: Policy, least_s: float) -> str:
    """The cap that forbids the boost, as the agent checks it; or empty."""
    _, text = quote_refusal(
        quote,
        needs_price=policy.caps.needs_price,
        most_cost=policy.caps.cost_left(spend),
        least_s=least_s,
        max_size_bytes=policy.caps.max_size_bytes,
    )
    return spending_refusal(quote.spec.size_bytes, spend, policy, least_s) or text


def config_of(app: App, status: Status | None) -> Config:
    """The configuration; for `elastiod --sim` without a file, that of the simulated machine."""
    try:
        return app.config()
    except ConfigError as error:
        if error.code != "file.missing" or status is None or status.agent.cloud != "sim":
            raise
    return config_of_simulator()


def _recorded(app: App, backing_uuid: str, now_wall: float) -> tuple[int | None, Spend]:
    """The learned size and the spending in the ledger; nothing if there is no ledger."""
    zone = local_zone()
    first, today = month_start(now_wall, zone), day_start(now_wall, zone)
    try:
        with open_ledger(app) as ledger:
            month = MonthToDate(ledger.spent_between)
            spend = month.with_month(ledger.spend_since(today, now_wall), first, today)
            return ledger.learned_size(backing_uuid), spend
    except ElastioError as error:
        if error.code != "ledger.missing":
            raise
        return None, Spend()


# --- as text -----------------------------------------------------------------------------------------------


def rows(found: BoostQuote) -> list[tuple[str, str]]:
    """Name and text of each line to print."""
    quote = found.quote
    flush = found.policy.drain_bandwidth_mb_s
    drain = f", of it {flush:g} MB/s to flush with" if flush else ""
    lines = [
        ("size", format_size(quote.spec.size_bytes)),
        ("bandwidth", f"{round(quote.spec.bandwidth_mb_s, 1):g} MB/s{drain}"),
    ]
    if quote.price_known:
        least = f"{_money(found, found.least_s)} for {format_duration(found.least_s)}"
        most = _most(found)
        price = f"{quote.price_per_hour:.4f} {quote.currency} an hour ({quote.price_source})"
        lines += [("price", price), ("least cost", least), ("most today", most)]
    else:
        lines.append(("price", f"unknown: {quote.price_source}"))
    lines.append(("caps", _caps(found)))
    return lines


def _most(found: BoostQuote) -> str:
    kept = f"if the cache is kept until midnight, for {format_duration(found.left_s)}"
    most, until_midnight = found.most_today or 0.0, found.cost(max(found.left_s, found.least_s)) or 0.0
    return f"{most:.4f} {found.quote.currency} {kept if most == until_midnight else 'where a cap ends the boost'}"


def _money(found: BoostQuote, seconds: float) -> str:
    return f"{found.cost(seconds):.4f} {found.quote.currency}"


def _caps(found: BoostQuote) -> str:
    """What the caps leave, today and in the month."""
    if found.refused:
        return f"no boost begins: {found.refused}"
    caps: Caps = found.policy.caps
    today, month = found.spend.under_caps_today, found.spend.under_caps_this_month
    left = [
        f"{most - spent:{form}} {unit} {period}"
        for period, limits, used in (("today", caps.day, today), ("this month", caps.month, month))
        for most, spent, form, unit in zip(
            limits,
            (used.boosts, used.agbs, used.currency),
            ("d", ".0f", ".4f"),
            ("boosts", "AGBs", found.quote.currency),
            strict=True,
        )
        if most is not None
    ]
    return f"leave {', '.join(left)}; {_on_running(caps)}" if left else "none is set"


def _on_running(caps: Caps) -> str:
    """What the caps that are set do to a boost that runs."""
    grows = (caps.max_agbs_per_day, caps.max_cost_per_day, caps.max_agbs_per_month, caps.max_cost_per_month)
    ends = caps.ends_boosts and any(most is not None for most in grows)
    return "a boost ends before its bill passes one" if ends else "they do not end a boost that has begun"


def to_dict(found: BoostQuote) -> dict[str, object]:
    """The quote as JSON values. Costs are null if the price is not known."""
    quote = found.quote
    return {
        "size_bytes": quote.spec.size_bytes,
        "bandwidth_mb_s": quote.spec.bandwidth_mb_s,
        "iops": quote.spec.iops,
        "currency": quote.currency,
        "price_per_hour": quote.price_per_hour if quote.price_known else None,
        "price_source": quote.price_source,
        "least_s": found.least_s,
        "least_cost": found.cost(found.least_s),
        "left_today_s": found.left_s,
        "most_today": found.most_today,
        "refused": found.refused,
    }
