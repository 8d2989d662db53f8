"""Throttled requests: nothing is in flight when the cache is switched, and no application is blocked for long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elastio.host.cgroups import FREE
from elastio.host.throttle import STOP
from elastio_testbed.faults import in_flight
from elastio_testbed.faults.checker import DIRECT_AT, Checker, wait_for_reads
from elastio_testbed.faults.consistency import READS_S
from elastio_testbed.hypervisor import QEMU, choice
from elastio_testbed.machine import DATA
from tests.faults.conftest import SEED, Target

pytestmark = pytest.mark.guest

CONFIG = "/etc/elastio/elastio.toml"
PROBED = "/run/probed"
WITHIN_S = 10
WRITERS, MIB_BLOCKS = 40, 256
# At slow speed two MiB per second in total.
HEAVY = {
    "offset": DIRECT_AT,
    "blocks": WRITERS * MIB_BLOCKS,
    "direct": True,
    "writers": WRITERS,
    "readers": 3,
    "write_blocks": MIB_BLOCKS,
    "slow_pause_s": 20,
}
READS = 300


@pytest.fixture(scope="module", autouse=True)
def kernel_with_probes() -> Iterator[None]:
    """User-mode Linux has none, and only one processor to have requests in flight from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(choice.VARIABLE, QEMU)
        yield


def limit(target: Target, limits: str) -> None:
    """Limit every cgroup below the root, as the agent does."""
    script = 'for group in /sys/fs/cgroup/*/io.max; do echo "$(cat /sys/block/$0/dev) $1" > $group || true; done'
    target.lab.guest.check(["sh", "-c", script, target.lab.device(), limits])


def test_applications_can_write_after_a_kill_although_the_configuration_is_corrupt(target: Target) -> None:
    lab, agent = target.lab, target.lab.guest.vm.agent
    config = agent.read_file(CONFIG)
    try:
        limit(target, STOP)
        agent.write_file(CONFIG, b"[device\n", 0o640)
        write = f"dd if=/dev/zero of={DATA}/probe bs=4k count=1 oflag=direct conv=fsync && touch {PROBED}"
        lab.guest.check(["systemd-run", "--collect", "--unit=probe", "sh", "-c", write])
        assert not lab.succeeds("test", "-e", PROBED)
        lab.guest.check(["systemctl", "kill", "--signal=KILL", "--kill-whom=all", "elastiod"])
        lab.wait_until(lambda: lab.succeeds("test", "-e", PROBED), WITHIN_S, "the throttled write")
    finally:
        limit(target, FREE)
        agent.write_file(CONFIG, config, 0o640)
        target.run("systemctl", "reset-failed", "elastiod")
        target.run("systemctl", "restart", "elastiod")
    lab.wait_for_agent()
    assert lab.takes_writes()


def test_no_write_is_in_flight_when_a_cache_is_attached_or_bypassed_under_forty_writers(target: Target) -> None:
    """The last test of the guest: the writers overwrite its filesystem."""
    lab = target.lab
    checker = Checker(lab, SEED, [HEAVY])
    in_flight.start(lab)
    checker.start()
    checker.set_speed("full")
    target.wait_for(lambda status: status["phase"] == "boosting", "a boost", 300)
    wait_for_reads(checker, READS, READS_S)
    lab.guest.check(["elastio", "pause"], timeout_s=90)
    checker.set_speed("slow")
    lab.wait_for_rest()
    seen = in_flight.stop(lab)
    found = checker.stop()
    assert (found["wrong"], found["stale_at_rest"]) == (0, 0), found
    switches = [store for store in seen.stores if store.is_switch]
    assert {store.attribute for store in switches} == {"attach", "cache_mode"}
    assert [store for store in switches if store.writes] == []
    assert seen.most_writes >= WRITERS // 2, "too few writes in flight for a proof"
