"""What is wrong, as sentences of faults for people. Pure."""

from __future__ import annotations

from elastio.core.cycle import Cycle
from elastio.core.model import BackingView, Volume
from elastio.units import format_size


def inconsistent(cycle: Cycle | None) -> str:
    """A device that somebody started by force; without a cycle no volume is known that has what it lacks."""
    remedy = "resume --accept-data-loss` accepts it as it is" if cycle is None else "recover` says what can be done"
    return f"the backing device was started by force without its cache: it is inconsistent (`elastio {remedy})"


def missing(cycle: Cycle | None, backing: BackingView) -> str:
    """A device that waits for its cache."""
    name = volume_name(cycle)
    text = f"the cache of the backing device is missing and the device is {backing.state}"
    if backing.may_have_been_written_since:
        return f"{text}: volume {name} may be older than the device, or be needed (`elastio recover`)"
    return f"{text}: attach volume {name} again; the device is not started without it (`elastio recover`)"


def why_may_lack_data(cycle: Cycle) -> str:
    """What is wrong with a device that shows no cache although this agent did not detach it."""
    return (
        f"the kernel shows no cache, but volume {volume_name(cycle)} was the cache when it was last seen, with "
        f"{format_size(cycle.dirty_bytes)} dirty, and this agent did not detach it: the backing device may be an "
        "older copy, or lack that data (`elastio recover`)"
    )


def unclaimed(volumes: tuple[Volume, ...]) -> str:
    """Volumes of this device that may hold data, and that no cycle knows."""
    names = ", ".join(f"{v.id} ({format_size(v.size_bytes)}, {v.tag})" for v in volumes)
    return (
        f"volume {names} was bought for this backing device, is not tagged clean, and no cycle knows it: the backing "
        "device or the journal may be an older copy, and it may hold data that this device lacks (`elastio recover`)"
    )


def volume_name(cycle: Cycle | None) -> str:
    """The volume's ID, or what it was."""
    return cycle.volume_id if cycle and cycle.volume_id else "that was its cache"
