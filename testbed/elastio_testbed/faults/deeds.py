"""One function per deed: what is done to the guest at the moment, and the way back that an operator has."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from elastio_testbed.ec2 import Quota
from elastio_testbed.faults.kinds import Deed
from elastio_testbed.faults.lab import Lab
from elastio_testbed.faults.subject import CALL_S
from elastio_testbed.hypervisor import GuestError, HypervisorError
from elastio_testbed.machine import DATA

OFF_S, STOP_S = 240.0, 120.0
# For how long the cloud refuses everything, and the agent stays stopped.
REFUSING_S, STOPPED_S, FULL_S = 25.0, 8.0, 25.0
# Until applications write again when nobody is left to let them.
FREE_S = 10.0
STATE = "/var/lib/elastio"
FILLER = f"{STATE}/filler"
MISSED_S, RECOVER_S, DIRTY_S = 120.0, 300, 180.0


def nothing(lab: Lab) -> None:
    """The cloud's fault is in force, or has struck, already."""


def kill_daemon(lab: Lab) -> None:
    """Done in the guest, in the instant of the moment; here for a fault at no moment: its main process alone."""
    lab.guest.check(["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "elastiod"], timeout_s=CALL_S)


def clear_io_limits(lab: Lab) -> None:
    """The guest has killed the daemon as it held applications back; its configuration does not parse any more.

    Nobody may have to mend that first for applications to write again.
    """
    began = time.monotonic()
    if not lab.takes_writes() or time.monotonic() - began > FREE_S:
        raise GuestError(f"applications could not write {time.monotonic() - began:.0f} s after the daemon's end")
    lab.write_config()
    lab.guest.vm.agent.run(["systemctl", "reset-failed", "elastiod"], timeout_s=CALL_S)
    lab.guest.check(["systemctl", "restart", "elastiod"], timeout_s=STOP_S)


def fill_disk(lab: Lab) -> None:
    """To the last block, root's reserve too, for a while; the agent may neither release nor lose anything then."""
    room = f"$(($(stat -f -c %f {STATE}) * $(stat -f -c %S {STATE})))"
    fill = f"fallocate -l {room} {FILLER}; cat /dev/zero > {FILLER}.rest"
    try:
        lab.guest.vm.agent.run(["sh", "-c", fill], timeout_s=STOP_S)
        time.sleep(FULL_S)
        if not lab.takes_writes():
            raise GuestError("applications cannot write while the agent's disk is full")
    finally:
        lab.guest.check(["rm", "-f", FILLER, f"{FILLER}.rest"], timeout_s=CALL_S)
    lab.guest.vm.agent.run(["systemctl", "start", "elastiod"], timeout_s=STOP_S)


def cut_power(lab: Lab) -> None:
    lab.guest.vm.kill()
    lab.boot()


def stop_service(lab: Lab) -> None:
    lab.guest.check(["systemctl", "stop", "elastiod"], timeout_s=STOP_S)
    time.sleep(STOPPED_S)
    lab.guest.check(["systemctl", "start", "elastiod"], timeout_s=STOP_S)


def reboot(lab: Lab) -> None:
    _end_orderly(lab, "reboot")


def power_off(lab: Lab) -> None:
    _end_orderly(lab, "poweroff")


def _end_orderly(lab: Lab, how: str) -> None:
    with suppress(GuestError):  # it may be gone before it has answered
        lab.guest.check(["systemctl", "--no-block", how], timeout_s=CALL_S)
    if not lab.guest.vm.await_off(OFF_S):
        raise GuestError(f"{how}: still on after {OFF_S:.0f} s, and killed\n{lab.guest.vm.console_tail()}")
    lab.boot()


def make_dirty(lab: Lab) -> None:
    """Load, for as long as it takes until some of it is on the cache alone.

    A cloud that was slow may have brought the cache after the first load's end.
    """
    lab.wait_until(lambda: _is_dirty_under_load(lab), DIRTY_S, "dirty data in the cache")


def _is_dirty_under_load(lab: Lab) -> bool:
    if not lab.burst_runs():
        lab.burst()
    backing = lab.guest.status()["backing"]
    return backing is not None and int(backing["dirty_bytes"]) > 0


def pull(lab: Lab) -> None:
    """Tear the cache volume off."""
    lab.cloud.tear_off(lab.attached_volume(), lab.guest.vm.pull)


def bring_cache_back(lab: Lab) -> bool:
    """What `docs/how-to/recover.md` tells an operator to do after that; whether it took a power cycle."""
    is_reset = False
    try:
        _put_together(lab)
    except HypervisorError:
        # The page's way out: a reboot, which finds the backing device waiting for its cache.
        lab.guest.vm.kill()
        lab.guest.vm.start(300)
        is_reset = True
    lab.wait_for_agent(300)
    lab.mount()
    return is_reset


def _put_together(lab: Lab) -> None:
    for unit in ("records", "burst"):
        lab.stop(unit)
    if lab.takes_writes():
        return  # the cache was clean: the kernel went on without it
    seen = lab.guest.wait_for(_is_missed_or_over, MISSED_S, "the agent to miss its cache, or to need none")
    if seen["missing"] is None:
        lab.guest.check(["umount", DATA], timeout_s=CALL_S)  # clean as well, but the filesystem met an error
        return
    lab.guest.check(["elastio", "recover", "--umount", "--timeout", str(RECOVER_S)], timeout_s=RECOVER_S + CALL_S)


def _is_missed_or_over(status: dict[str, Any]) -> bool:
    return status["missing"] is not None or (status["phase"] == "idle" and status["cycle"] is None)


def revoke(lab: Lab) -> None:
    lab.cloud.faults.revoke_credentials("ExpiredToken")
    time.sleep(REFUSING_S)
    lab.cloud.faults.clear()


def forbid(lab: Lab) -> None:
    """The quota is used up already, by `before`; it is raised while the load may still last."""
    time.sleep(REFUSING_S)
    lab.cloud.quota = Quota()


# What has to be so before the deed is one; the time it takes is not the time of the fault.
READY: Mapping[Deed, Callable[[Lab], None]] = {Deed.PULL_DIRTY: make_dirty}

DEEDS: Mapping[Deed, Callable[[Lab], None]] = {
    Deed.NOTHING: nothing,
    Deed.KILL_DAEMON: kill_daemon,
    Deed.KILL_HOLDING: clear_io_limits,
    Deed.FILL_DISK: fill_disk,
    Deed.CUT_POWER: cut_power,
    Deed.STOP_SERVICE: stop_service,
    Deed.REBOOT: reboot,
    Deed.POWER_OFF: power_off,
    Deed.PULL_DIRTY: pull,
    Deed.PULL_CLEAN: pull,
    Deed.REVOKE: revoke,
    Deed.FORBID: forbid,
}
