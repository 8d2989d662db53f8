"""`elastio status --check`: one line and an exit code for probes, made from the status document. Pure.

The line is that of a monitoring plugin (monitoring-plugins.org, "Plugin Output"): state, text, and figures after a bar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elastio.control.exit_codes import Exit, exit_of
from elastio.control.protocol import UnreachableError
from elastio.control.status import Status
from elastio.errors import ElastioError
from elastio.units import format_size

# A running agent samples each second or so; one that waits for a slow kernel is late.
STALE_S = 60.0
# One refused purchase may be a moment's shortage of the cloud.
FAILURES = 3
WORDS = {Exit.OK: "OK", Exit.DEGRADED: "WARNING", Exit.FAULTED: "CRITICAL", Exit.UNREACHABLE: "CRITICAL"}


@dataclass(frozen=True, slots=True)
class Check:
    """`exit` is OK, DEGRADED or FAULTED, or that of the error if the agent could not be asked."""

    exit: Exit
    line: str


def check(seen: Status) -> Check:
    """What a probe says about this document."""
    troubles = list(_troubles(seen))
    if seen.fault:
        return _result(Exit.FAULTED, "; ".join([seen.fault, *troubles]), _figures(seen))
    exit = Exit.DEGRADED if troubles else Exit.OK
    return _result(exit, "; ".join(troubles) or _summary(seen), _figures(seen))


def unanswered(error: ElastioError) -> Check:
    """What a probe says if the agent does not answer, or may not be asked by this user."""
    is_down = isinstance(error, UnreachableError) and error.code != "socket.permission"
    word = WORDS[Exit.UNREACHABLE] if is_down else "UNKNOWN"
    return Check(exit_of(error), f"elastio {word}: {_plain(str(error))}")


def _result(exit: Exit, text: str, figures: str) -> Check:
    return Check(exit, f"elastio {WORDS[exit]}: {_plain(text)} | {figures}")


def _plain(text: str) -> str:
    """On one line, and without the bar, after which figures begin."""
    return " ".join(text.replace("|", "/").split())


def _troubles(seen: Status) -> Iterator[str]:
    """What needs somebody's attention; the most important first."""
    kept = [volume.id for volume in seen.owned or () if volume.kept]
    sampled, purchases = seen.load.sampled_wall, seen.purchases
    if not seen.recovered:
        yield "the kernel has not been read yet"
    if not seen.agent.host_responsive:
        yield "the kernel does not answer"
    if seen.recovered and (sampled is None or seen.wall - sampled > STALE_S):
        yield "throughput is not measured"
    if kept:
        yield f"only an operator may release {', '.join(kept)}"
    if purchases.stopped:
        yield "no volume is bought until `elastio resume`"
    elif purchases.failures >= FAILURES:
        yield f"{purchases.failures} boosts in a row failed"
    if seen.capped:
        yield seen.capped
    if not seen.spend.known:
        yield "the ledger cannot be read"
    if seen.cloud_error:
        yield seen.cloud_error


def _summary(seen: Status) -> str:
    notes = [f"{format_size(seen.backing.dirty_bytes)} dirty"] if seen.backing else []
    notes += ["paused"] if seen.paused else []
    notes += [f"held: {seen.hold.reason}"] if seen.hold else []
    return ", ".join([seen.phase, *notes])


def _figures(seen: Status) -> str:
    return f"dirty={seen.dirty_bytes}B utilization={seen.load.utilization * 100:.0f}% boosts_today={seen.spend.boosts}"
