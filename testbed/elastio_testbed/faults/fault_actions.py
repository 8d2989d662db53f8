"""One function per fault action: what is done to the guest, and how an operator recovers from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from elastio_testbed.ec2 import Quota
from elastio_testbed.faults.fault_target import CALL_S
from elastio_testbed.faults.kinds import FaultAction
from elastio_testbed.faults.lab import Lab
from elastio_testbed.hypervisor import GuestError, HypervisorError
from elastio_testbed.machine import DATA

OFF_S, STOP_S = 240.0, 120.0
# Durations for which the cloud refuses every call, the agent stays stopped, and the disk stays full.
REFUSING_S, STOPPED_S, FULL_S = 25.0, 8.0, 25.0
# The longest time until applications can write again after the daemon was killed.
FREE_S = 10.0
STATE = "/var/lib/elastio"
FILLER = f"{STATE}/filler"
MISSED_S, RECOVER_S, DIRTY_S = 120.0, 300, 180.0


def nothing(lab: Lab) -> None:
    """The fault is the cloud's, and was injected before."""


def kill_daemon(lab: Lab) -> None:
    """Kill the main process. At a trigger the guest does it by itself, at once; this is for a delayed kill."""
    lab.guest.check(["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "elastiod"], timeout_s=CALL_S)


def verify_unthrottled(lab: Lab) -> None:
    """Check that applications can write although the daemon was killed while it throttled them.

    Its configuration is corrupt at that time, so it cannot be restarted; then the configuration is restored.
    """
    began = time.monotonic()
    if not lab.takes_writes() or time.monotonic() - began > FREE_S:
        raise GuestError(f"applications could not write {time.monotonic() - began:.0f} s after the daemon was killed")
    lab.write_config()
    lab.guest.vm.agent.run(["systemctl", "reset-failed", "elastiod"], timeout_s=CALL_S)
    lab.guest.check(["systemctl", "restart", "elastiod"], timeout_s=STOP_S)


def fill_disk(lab: Lab) -> None:
    """Fill the state disk to the last block, root's reserve included, for a while; applications must not notice."""
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
    _shut_down(lab, "reboot")


def power_off(lab: Lab) -> None:
    _shut_down(lab, "poweroff")


def _shut_down(lab: Lab, how: str) -> None:
    with suppress(GuestError):  # the guest may be gone before it has answered
        lab.guest.check(["systemctl", "--no-block", how], timeout_s=CALL_S)
    if not lab.guest.vm.await_off(OFF_S):
        raise GuestError(f"{how}: still running after {OFF_S:.0f} s, killed\n{lab.guest.vm.console_tail()}")
    lab.boot()


def make_dirty(lab: Lab) -> None:
    """Write until some data is dirty, that is, on the cache only.

    The cache of a slow cloud may have arrived after the end of the first load.
    """
    lab.wait_until(lambda: _is_dirty_under_load(lab), DIRTY_S, "dirty data in the cache")


def _is_dirty_under_load(lab: Lab) -> bool:
    if not lab.burst_runs():
        lab.burst()
    backing = lab.guest.status()["backing"]
    return backing is not None and int(backing["dirty_bytes"]) > 0


def remove_cache(lab: Lab) -> None:
    """Remove the cache volume without any notice to the guest."""
    lab.cloud.tear_off(lab.attached_volume(), lab.guest.vm.pull)


def recover_cache(lab: Lab) -> bool:
    """Recover as described in `docs/how-to/recover.md`. Returns whether that took a power cycle."""
    is_reset = False
    try:
        _reattach(lab)
    except HypervisorError:
        # The last resort of that page: after a reboot the backing device waits for its cache.
        lab.guest.vm.kill()
        lab.guest.vm.start(300)
        is_reset = True
    lab.wait_for_agent(300)
    lab.mount()
    return is_reset


def _reattach(lab: Lab) -> None:
    for unit in ("records", "burst"):
        lab.stop(unit)
    if lab.takes_writes():
        return  # the cache was clean: the kernel continued without it
    seen = lab.guest.wait_for(_is_missing_or_idle, MISSED_S, "the agent to report a missing cache, or to be idle")
    if seen["missing"] is None:
        lab.guest.check(["umount", DATA], timeout_s=CALL_S)  # also clean, but the filesystem has seen an I/O error
        return
    command = lab.guest.elastio("recover", "--umount", "--timeout", str(RECOVER_S))
    lab.guest.check(command, timeout_s=RECOVER_S + CALL_S)


def _is_missing_or_idle(status: dict[str, Any]) -> bool:
    return status["missing"] is not None or (status["phase"] == "idle" and status["cycle"] is None)


def revoke_credentials(lab: Lab) -> None:
    lab.cloud.faults.revoke_credentials("ExpiredToken")
    time.sleep(REFUSING_S)
    lab.cloud.faults.clear()


def raise_quota(lab: Lab) -> None:
    """Restore the quota, which `set_up` has used up, while the load may still last."""
    time.sleep(REFUSING_S)
    lab.cloud.quota = Quota()


# Preparations that do not count as time of the fault.
PREPARATIONS: Mapping[FaultAction, Callable[[Lab], None]] = {FaultAction.PULL_DIRTY: make_dirty}

FAULT_ACTIONS: Mapping[FaultAction, Callable[[Lab], None]] = {
    FaultAction.NOTHING: nothing,
    FaultAction.KILL_DAEMON: kill_daemon,
    FaultAction.KILL_THROTTLING: verify_unthrottled,
    FaultAction.FILL_DISK: fill_disk,
    FaultAction.CUT_POWER: cut_power,
    FaultAction.STOP_SERVICE: stop_service,
    FaultAction.REBOOT: reboot,
    FaultAction.POWER_OFF: power_off,
    FaultAction.PULL_DIRTY: remove_cache,
    FaultAction.PULL_CLEAN: remove_cache,
    FaultAction.REVOKE: revoke_credentials,
    FaultAction.FORBID: raise_quota,
}
