"""The elastic cycle on real bcache, with the real daemon under systemd and real boto3."""

from __future__ import annotations

import pytest

from elastio_testbed.machine import DATA
from tests.e2e.conftest import MIB, Lab

pytestmark = pytest.mark.guest


def test_bursts_are_cached_flushed_and_released_and_the_second_size_is_learned(lab: Lab) -> None:
    for name in ("first", "second"):
        lab.burst(name, MIB)
        boosted = lab.wait_for_phase("boosting")
        assert boosted["backing"]["cache_mode"] == "writeback"
        lab.wait_for_rest()
        assert lab.left() == ([], ())
        assert lab.is_intact(name, MIB)

    phases = lab.guest.report()["phases"]
    # More than two on a machine so slow that a burst pauses for longer than the inactivity delay.
    assert len(phases) >= 2
    assert {p["failure"] for p in phases} == {""}
    assert len([p for p in phases if p["peak_dirty_bytes"] > 0]) >= 2, phases
    assert phases[-1]["provisioned_size_bytes"] < phases[0]["provisioned_size_bytes"]
    volumes = lab.cloud.volumes()
    assert len(volumes) == len(phases)
    assert all(v.deleted_at is not None for v in volumes)


def test_boost_and_flush_by_command_wait_for_their_completion(lab: Lab) -> None:
    code, output = lab.run("elastio", "boost", "--size", "0.5", "--wait", timeout_s=200)
    assert code == 0, output
    assert lab.guest.status()["phase"] == "boosting"
    code, output = lab.run("elastio", "flush", "--wait", timeout_s=300)
    assert code == 0, output
    lab.wait_for_rest()
    assert lab.left() == ([], ())


def test_an_agent_that_is_killed_and_cannot_be_started_leaves_nothing_throttled(lab: Lab) -> None:
    broken = "/etc/elastio/elastio.toml.d/99-broken.toml"
    hold = 'for g in /sys/fs/cgroup/*.slice; do echo "$(cat /sys/block/bcache0/dev) rbps=2 wbps=2" > $g/io.max; done'
    lab.guest.check(["sh", "-c", f"mkdir -p {broken.rpartition('/')[0]}; echo misspelt = 1 > {broken}; {hold}"])
    write = ["dd", "if=/dev/zero", f"of={DATA}/held", "bs=64k", "count=16", "oflag=direct"]
    lab.guest.check(["systemd-run", "--unit=held", *write])
    written = "until [ $(systemctl show held -P SubState) = dead ]; do sleep 0.2; done"
    assert lab.run("timeout", "3", "sh", "-c", written)[0] == 124, "the write is throttled"
    lab.guest.check(["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "elastiod"])
    assert lab.run("timeout", "10", "sh", "-c", written)[0] == 0
    stopped = "until [ $(systemctl show elastiod -P ActiveState) = failed ]; do sleep 0.2; done"
    assert lab.run("timeout", "40", "sh", "-c", stopped)[0] == 0
    lab.guest.check(["sh", "-c", f"rm {broken}; systemctl reset-failed elastiod; systemctl start elastiod"])
    lab.wait_for_rest()


def test_the_report_agrees_with_what_the_cloud_saw(lab: Lab) -> None:
    report = lab.guest.report()
    scale = lab.cloud.scale
    seen = sum(
        v.throughput_mib_s
        * scale.mib_s_bytes
        / 1e6
        * v.size_gib
        * scale.gib_bytes
        / 1e9
        * (v.deleted_at - v.created_at)
        for v in lab.cloud.volumes()
        if v.deleted_at is not None
    )
    # The billed time of the cloud and that of the agent differ by the latency of a call.
    assert report["vm"]["cache_agbs"] == pytest.approx(seen, rel=0.1)
