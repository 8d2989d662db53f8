"""The disks of a guest are slowed on purpose, and restored."""

from elastio_testbed.disturbance import INTO_S, LASTS_S, Disturbance

FAST, SLOW = 30_000_000, 9_000_000
COMPUTE_S = 100.0


class Disks:
    def __init__(self) -> None:
        self.shown: dict[str, int | None] = {"data": SLOW, "boot": None}

    def limits(self) -> dict[str, int | None]:
        return dict(self.shown)

    def set_limit(self, serial: str, bytes_per_second: int | None, iops: int | None = None) -> None:
        assert serial in self.shown
        self.shown[serial] = bytes_per_second


def test_a_later_burst_is_slow_from_its_start_for_ten_seconds() -> None:
    disks = Disks()
    disturbance = Disturbance(disks, 2, COMPUTE_S)
    disturbance.update(0, 0)
    disturbance.update(1, 20)
    begin = 20 + COMPUTE_S + INTO_S
    disturbance.update(1, begin - 0.1)
    assert disks.shown == {"data": SLOW, "boot": None}
    disturbance.update(1, begin)
    assert disks.shown == {"data": SLOW // 3, "boot": None}
    disturbance.update(1, begin + LASTS_S - 0.1)
    assert disks.shown["data"] == SLOW // 3
    assert not disturbance.is_over
    disturbance.update(1, begin + LASTS_S)
    assert disks.shown == {"data": SLOW, "boot": None}
    assert disturbance.is_over


def test_a_cache_attached_meanwhile_is_slowed_and_a_detached_one_ignored() -> None:
    disks = Disks()
    disturbance = Disturbance(disks, 1, COMPUTE_S)
    disks.shown["old"] = FAST
    disturbance.update(0, 0)
    disturbance.update(0, INTO_S)
    disks.shown["new"] = FAST
    disturbance.update(0, INTO_S + 1)
    assert disks.shown["new"] == FAST // 3
    del disks.shown["old"]
    disturbance.update(1, INTO_S + LASTS_S)
    assert disks.shown == {"data": SLOW, "boot": None, "new": FAST}


def test_it_can_be_ended_early_and_knows_whether_it_has_struck() -> None:
    disks = Disks()
    early, late = Disturbance(disks, 1, COMPUTE_S), Disturbance(disks, 2, COMPUTE_S)
    for disturbance in (early, late):
        disturbance.update(0, 0)
        disturbance.update(0, INTO_S)
        disturbance.end()
    assert disks.shown["data"] == SLOW
    assert (early.has_struck, late.has_struck) == (True, False)
