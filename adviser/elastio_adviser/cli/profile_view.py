"""What `elastio profile` says: an answer in words, account, histogram of waits, curve, and what to buy. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from elastio.accounting.tables import table
from elastio.strategy.account import PARTS, SIGMAS, Account, Limit, Totals, account, error_s, seconds_of
from elastio.strategy.bandwidth import FARTHEST, MOST_UNKNOWN, Curves
from elastio.units import MB, format_duration
from elastio_adviser.bandwidth_advice import BandwidthAdvice, Why, lost_share, steps_mb_s
from elastio_adviser.profiler import Measured, ProcessTotals
from elastio_cli.charts import ASCII, bar, clean, clip

NAMES = {
    "computing": "computing",
    "queue": "in the run queue",
    "bandwidth": "waiting for bandwidth",
    "latency": "waiting for latency",
    "elsewhere": "elsewhere",
    "unknown": "unknown",
}
MEANING = {
    "computing": "",
    "queue": "ready, but all processors are taken",
    "bandwidth": "disk at its limit: more MB/s would help",
    "latency": "disk below its limit: faster requests would help, MB/s would not",
    "elsewhere": "another disk; or asleep: a lock, a network, a timer",
    "unknown": "may be waiting for bandwidth",
}
BAR = 22
MOST_PROCESSES = 20
# Bounds of several tasks are printed if their waiting differs by more than this share of the time.
OPEN = 0.05
FEW_READINGS = 100
# A part of the time that is worth a remark.
REMARK = 0.1
# One that is worth a remark where it makes an answer uncertain.
LITTLE = 0.02


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile and what it was asked with. `cap_mb_s`: the bandwidth limit that was given; None: not known.

    `exit_code`: the command's; None: no command was run. `pressure_s`: by the kernel's pressure, of `pressure_of`.
    """

    of: str
    device: str
    measured: Measured
    cap_mb_s: float | None
    curves: Curves
    stop_gain: float
    advice: BandwidthAdvice
    exit_code: int | None = None
    pressure_s: float | None = None
    pressure_of: str = "the machine"

    @property
    def is_answered(self) -> bool:
        """Whether enough was seen."""
        return self.advice.why not in (Why.NOTHING_SEEN, Why.READINGS_LOST)

    @property
    def account(self) -> Account:
        return account(self.measured.totals)


# --- text ------------------------------------------------------------------------------------------------


def to_text(profile: Profile, *, with_processes: bool) -> str:
    """The whole answer, lines of at most about 120 columns."""
    totals = profile.measured.totals
    if totals.seconds <= 0:
        return "\n".join([f"{clean(profile.of)}: nothing was seen, it ended at once: profile a longer run", ""])
    lines = [*_heading(profile), answer(profile), "", *account_lines(profile.account), "", *histogram(totals), ""]
    curve = curve_table(profile)
    lines += [*curve, ""] if curve else []
    lines += [inflection(profile), next_cache(profile), ""]
    if with_processes:
        lines += _processes(profile.measured)
    return "\n".join([*lines, *(f"Note: {note}" for note in notes(profile)), ""])


def _heading(profile: Profile) -> list[str]:
    totals = profile.measured.totals
    unknown = "limited by a cgroup" if profile.measured.limits else "limit not known"
    limit = unknown if profile.cap_mb_s is None else f"limit {_mb_s(profile.cap_mb_s)}"
    moved = f"{totals.moved_bytes / MB:,.0f} MB in {totals.requests:,} requests"
    lasted = format_duration(totals.seconds)
    lines = [f"{clip(clean(profile.of), 70, ASCII)}: {lasted}; disk {profile.device}, {limit}, moved {moved}"]
    if profile.exit_code:
        lines.append(f"The command ended with code {profile.exit_code}.")
    return lines


def mostly(found: Account) -> str:
    """The largest of the six parts."""
    return max(PARTS, key=lambda part: seconds_of(found, part))


def answer(profile: Profile) -> str:
    """The answer in words."""
    found, curve = profile.account, profile.curves.likely
    if profile.advice.why is Why.READINGS_LOST:
        return "No answer: this machine was too busy to be read."
    part = mostly(found)
    share = _percent(seconds_of(found, part), found.seconds)
    said = {
        "computing": f"It computes for {share} of its time.",
        "queue": f"It is ready to run for {share} of its time, while all processors are taken.",
        "bandwidth": f"It waits for bandwidth for {share} of its time.",
        "latency": f"It waits for latency for {share} of its time: the disk's answers, not its MB/s, are the limit.",
        "elsewhere": f"For {share} of its time it waits for something that is not this disk.",
        "unknown": f"What it waits for during {share} of its time cannot be told.",
    }[part]
    if profile.advice.why is Why.UNKNOWN:
        return said if part == "unknown" else f"{said} What it waits for in the rest cannot all be told."
    measured = curve.measured_mb_s
    if measured is None:
        return f"{said} More bandwidth would save nothing."
    saved = 1 - curve.time_s(2 * measured) / curve.time_s(measured)
    most = 1 - curve.rest_s / curve.time_s(measured)
    return f"{said} Twice the bandwidth would save {_share(saved)}, any bandwidth at most {_share(most)}."


def account_lines(found: Account) -> list[str]:
    """A line for each part."""
    lines = []
    for part in PARTS:
        seconds = seconds_of(found, part)
        share = seconds / found.seconds
        text = f"  {NAMES[part]:<22}{_percent(seconds, found.seconds):>6}  {format_duration(seconds):>12}"
        lines.append(f"{text}  {bar(share, BAR, ASCII)}  {MEANING[part]}".rstrip())
    return lines


def histogram(totals: Totals) -> list[str]:
    """How many of the seconds were how much of waiting."""
    heads = "".join(f"{f'<{10 * n}' if n < 10 else '<=100':>7}" for n in range(1, 11))
    shares = "".join(f"{_percent(seconds, totals.seconds)[:-2]:>7}" for seconds in totals.classes)
    return [f"  waiting in a second, %  {heads}", f"  of all seconds, %       {shares}"]


def curve_table(profile: Profile) -> list[str]:
    """The table T(B); with the times of both bounds where several tasks leave them open."""
    steps = steps_mb_s(profile.curves.likely, profile.stop_gain)
    if not steps:
        return []
    least, likely, most = profile.curves
    rows = [("time, s", likely)]
    if is_open(profile):
        rows += [("  if all could go on", most), ("  if none could", least)]
    lines = [f"  {'bandwidth, MB/s':<22}" + "".join(f"{_number(mb_s):>8}" for mb_s in steps)]
    lines += [f"  {name:<22}" + "".join(f"{_number(c.time_s(mb_s)):>8}" for mb_s in steps) for name, c in rows]
    return lines


def is_open(profile: Profile) -> bool:
    """Whether several tasks make the waiting for bandwidth uncertain."""
    least, _, most = profile.curves
    return most.waited_s - least.waited_s > OPEN * profile.measured.totals.seconds


def inflection(profile: Profile) -> str:
    """The inflection, and what it means."""
    least, likely, most = (curve.inflection_mb_s(profile.stop_gain) for curve in profile.curves)
    if likely <= 0:
        limited = "all that waited for bandwidth was at a limit of the cgroup"
        why = limited if profile.measured.totals.limited.seconds > 0 else "nothing waited for bandwidth"
        return f"Inflection: none, because {why}."
    stop = f"from there a doubling saves at most {_share(profile.stop_gain)} (--stop-gain)"
    if math.isinf(likely):
        return "Inflection: not found, because all of the run waits for bandwidth."
    between = f", between {_mb_s(least)} and {_mb_s(most)}" if is_open(profile) else ""
    return f"Inflection: {_mb_s(likely)}{between}; {stop}."


def next_cache(profile: Profile) -> str:
    """What to buy, and why."""
    mb_s, why, saved = profile.advice
    if mb_s is not None:
        bought = f"Next cache: {_mb_s(mb_s)}, which would save {_share(saved)} of the time"
        return {
            Why.INFLECTION: f"{bought}; more is not worth buying.",
            Why.DEMAND: f"{bought}; more cannot be used (--most).",
            Why.FARTHEST: f"{bought}; one run tells no more than {FARTHEST:g} times its bandwidth: profile again.",
        }[why]
    found = profile.account
    return {
        Why.NOTHING_SEEN: "Next cache: not known, because nothing was seen.",
        Why.READINGS_LOST: "Next cache: not known, because too many readings were lost.",
        Why.UNKNOWN: f"Next cache: not known; what is unknown is more than {_share(MOST_UNKNOWN)} of the time.",
        Why.NOT_BANDWIDTH: f"Next cache: none; {_not_bandwidth(found)}.",
        Why.ENOUGH: "Next cache: none; the disk is as fast as is worth buying.",
    }[why]


def _not_bandwidth(found: Account) -> str:
    return {
        "computing": "the processor is the limit",
        "queue": "the number of processors is the limit",
        "bandwidth": "a limit of the cgroup is the limit",
        "latency": "requests wait for the disk's answer, which a faster volume of the same kind gives no sooner",
        "elsewhere": "the wait is not for this disk",
        "unknown": "almost nothing is known to wait",
    }[mostly(found)]


def _processes(measured: Measured) -> list[str]:
    shown = measured.processes[:MOST_PROCESSES]
    rows = []
    for each in shown:
        found = account(each.totals)
        shares = (_percent(seconds_of(found, part), found.seconds) for part in PARTS)
        rows.append((str(each.pid), clip(clean(each.command), 20, ASCII), f"{found.seconds:.1f}", *shares))
    heads = ("pid", "command", "seconds", *PARTS)
    lines = table(heads, rows, 0) if rows else ["No process lived long enough to be read twice.", ""]
    hidden = measured.process_count - len(shown)
    return [*lines[:-1], f"({hidden} more, which lived no longer)", ""] if hidden > 0 and rows else lines


def notes(profile: Profile) -> list[str]:
    """What is not known, or cannot be seen, as sentences."""
    found, totals = profile.account, profile.measured.totals
    said = [f"The readings ended early: {profile.measured.ended}."] if profile.measured.ended else []
    said += _of_limits(profile, totals)
    if totals.instants < FEW_READINGS:
        said.append(f"Only {totals.instants} readings: profile a longer run.")
    lost = profile.measured.lost
    if lost_share(totals, lost) > REMARK:
        made = f"{lost} of {lost + totals.instants} readings were lost"
        said.append(f"{made}, because this machine was busy: profile again when it is less so.")
    said += _of_delays(profile, found, totals)
    if found.unknown_s > LITTLE * found.seconds:
        said.append(
            f"Unknown for {format_duration(found.unknown_s)}: tasks in epoll that may wait for libaio or io_uring, or "
            "whose system call cannot be read (root can), or that wait while no disk is busy."
        )
    if profile.pressure_s is None:
        said.append("The kernel reports no pressure (PSI); it would only be a hint.")
    else:
        shown = format_duration(profile.pressure_s)
        said.append(f"By the kernel's pressure, a hint, some task of {profile.pressure_of} waited for {shown}.")
    return said


def _of_limits(profile: Profile, totals: Totals) -> list[str]:
    limits = profile.measured.limits
    said = [
        f"The cgroup {clean(limit.cgroup)} limits {_limited(limit)}: a faster volume helps no more than that allows."
        for limit in limits
    ]
    if profile.cap_mb_s is None and not limits and totals.likely.seconds + totals.latency_s > 0:
        said.append(
            "The disk's bandwidth limit is not known: a wait is for bandwidth if its requests have 64 KiB or more. "
            "Give the limit with --bandwidth."
        )
    return said


def _limited(limit: Limit) -> str:
    ways = (("reads", limit.read_mb_s), ("writes", limit.write_mb_s))
    return " and ".join(f"{way} to {_mb_s(mb_s)}" for way, mb_s in ways if math.isfinite(mb_s))


def _of_delays(profile: Profile, found: Account, totals: Totals) -> list[str]:
    if not profile.measured.has_delays:
        within = _percent(min(totals.seconds, SIGMAS * error_s(totals)), totals.seconds)
        said = (
            "Delay accounting is off (kernel.task_delayacct): waits are samples of the tasks' states, true within "
            f"{within} of the time."
        )
        return [said]
    if found.uncounted_s > 0:
        said = (
            f"Delay accounting misses {format_duration(found.uncounted_s)} of waiting, such as an fsync that waits for "
            "the filesystem's journal: the samples count."
        )
        return [said]
    if found.uncounted_s < 0:
        said = (
            f"Delay accounting shows {format_duration(-found.uncounted_s)} more of waiting than the tasks' states, "
            "such as those of threads that ended between two readings."
        )
        return [said]
    return []


# --- figures ---------------------------------------------------------------------------------------------


def _percent(seconds: float, of_s: float) -> str:
    return f"{100 * seconds / of_s:.0f} %" if of_s > 0 else "-"


def _share(share: float) -> str:
    return f"{100 * share:.2g} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _mb_s(mb_s: float) -> str:
    return f"{_number(mb_s)} MB/s"


def to_dict(profile: Profile) -> dict[str, Any]:
    """The document of `--json`: seconds, MB/s, shares from 0 to 1; null: not known, or without bound."""
    return {
        "of": profile.of,
        "device": profile.device,
        "exit_code": profile.exit_code,
        "bandwidth_limit_mb_s": profile.cap_mb_s,
        **figures(profile),
        "readings_lost": profile.measured.lost,
        "limits": [
            {"cgroup": each.cgroup, "read_mb_s": _bounded(each.read_mb_s), "write_mb_s": _bounded(each.write_mb_s)}
            for each in profile.measured.limits
        ],
        "pressure_s": profile.pressure_s,
        "processes": [_process(each) for each in profile.measured.processes],
        "process_count": profile.measured.process_count,
        "notes": notes(profile) if profile.measured.totals.seconds > 0 else [],
    }


def figures(profile: Profile) -> dict[str, Any]:
    """Of the document, what is computed from the sums."""
    totals, found = profile.measured.totals, profile.account
    least, likely, most = profile.curves
    steps = steps_mb_s(likely, profile.stop_gain)
    return {
        "seconds": totals.seconds,
        "measured_mb_s": likely.measured_mb_s,
        "moved_bytes": totals.moved_bytes,
        "requests": totals.requests,
        "mostly": mostly(found) if profile.is_answered else None,
        "account": _account_of(totals),
        "by_delay_accounting": found.by_delays,
        "readings": totals.instants,
        "wait_classes_s": list(totals.classes),
        "waited_s": {"least": least.waited_s, "likely": likely.waited_s, "most": most.waited_s},
        "curve": [
            {"mb_s": b, "time_s": likely.time_s(b), "least_s": most.time_s(b), "most_s": least.time_s(b)} for b in steps
        ],
        "stop_gain": profile.stop_gain,
        "inflection_mb_s": {
            name: _bounded(curve.inflection_mb_s(profile.stop_gain))
            for name, curve in zip(("least", "likely", "most"), profile.curves, strict=True)
        },
        "next_cache": {**profile.advice._asdict(), "why": profile.advice.why.value, "text": next_cache(profile)},
    }


def _account_of(totals: Totals) -> dict[str, float]:
    return {name: value for name, value in asdict(account(totals)).items() if name.endswith("_s")}


def _process(each: ProcessTotals) -> dict[str, Any]:
    return {"pid": each.pid, "command": each.command, **_account_of(each.totals), "seconds": each.totals.seconds}


def _bounded(mb_s: float) -> float | None:
    return mb_s if math.isfinite(mb_s) else None
