"""The devices for which udev's rules are triggered."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.host.sysfs import Sysfs
from elastio.host.udev import show_to_systemd


def lay(root: Path, *names: str) -> None:
    for name in names:
        (root / "sys/block" / name).mkdir(parents=True)
        (root / "sys/block" / name / "uevent").touch()


def test_rules_are_triggered_for_adaptive_devices_and_their_partitions_alone(tmp_path: Path) -> None:
    lay(tmp_path, "bcache0", "bcache0/bcache0p1", "bcache0/queue", "bcache1", "vdb", "vdb/vdb1")
    for part in ("bcache0/bcache0p1", "vdb/vdb1"):
        (tmp_path / "sys/block" / part / "partition").write_text("1\n")
    show_to_systemd(Sysfs(tmp_path))
    triggered = sorted(p.parent.name for p in (tmp_path / "sys/block").rglob("uevent") if p.read_text())
    assert triggered == ["bcache0", "bcache0p1", "bcache1"]


def test_a_device_that_cannot_be_triggered_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lay(tmp_path, "bcache0", "bcache1")
    (tmp_path / "sys/block/bcache0/uevent").unlink()
    (tmp_path / "sys/block/bcache0/uevent").mkdir()
    show_to_systemd(Sysfs(tmp_path))
    assert (tmp_path / "sys/block/bcache1/uevent").read_text().strip() == "add"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
