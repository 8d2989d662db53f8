"""A volume that is in use is adopted at the next boot, before it is mounted, or mounted as it always was."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio_testbed.adopted import PACKAGES, AdoptedGuest
from elastio_testbed.adoption import FILES, FORGET, SUMS
from elastio_testbed.faults.lab import Lab
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA
from elastio_testbed.scratch import scratch_folder
from tests.operator.test_adopt import BOOT_S, DISKS, REACHED, SMALL_DISKS, STOPPED_AT, Adopted
from tests.operator.test_adopt import guest as guest  # noqa: PLC0414  the fixture

pytestmark = pytest.mark.guest

CALL_S, SEED = 300.0, 4
HOLD = f"systemd-run --unit=holder -pType=exec -pWorkingDirectory={DATA} sleep infinity && ! umount {DATA} 2>/dev/null"
ASK = f"elastio device adopt {DATA} $O --at-boot --yes"
ASKED = "ls /etc/elastio/at-boot 2>/dev/null; true"
# One that has failed is started again after 30 s, and does nothing then.
WORKING = "systemctl list-units --no-legend --state=activating 'elastio-compose@*' | grep -q ."


# Of the unit: stopped before the change with the number in a file, which the boot consumes.
STOP, STOPS = "/root/stop", "/etc/systemd/system/elastio-compose@.service.d"
DROP_IN = f"""\
[Service]
ExecStartPre=-/bin/sh -c 'mv {STOP} /run/stop && sync'
ExecStart=
ExecStart=/bin/sh -c 'exec python3 {STOPPED_AT} $$(cat /run/stop || echo -1) {REACHED} device compose %i'
"""
STEP = 4
# Of each the smallest volume that it fits on.
NODES = {"ext4": SMALL_DISKS, "xfs": DISKS, "btrfs": SMALL_DISKS}
WRITABLE = f"umount {DATA} && sed -i 's| {DATA} auto [^ ]*| {DATA} auto rw,nofail|' /etc/fstab && mount {DATA}"


def restart(adopted: Adopted) -> None:
    """In order: a journal that has to be replayed is not adopted."""
    assert adopted.vm.shutdown(CALL_S), adopted.vm.console_tail()
    adopted.vm.start(BOOT_S)


def require_done(adopted: Adopted) -> None:
    """Mounted, and nothing works on it any more."""
    adopted.require_mounted()
    adopted.shell(f"while {WORKING}; do sleep 0.5; done; udevadm settle; mountpoint -q {DATA}")


def reboot(adopted: Adopted) -> None:
    restart(adopted)
    require_done(adopted)


@pytest.fixture
def used(guest: Adopted, request: pytest.FixtureRequest) -> Adopted:
    """Mounted, and in use."""
    filesystem = getattr(request, "param", "ext4")
    guest.clear()
    found = Adopted(guest.vm, NODES[filesystem])
    found.clear()
    found.make(filesystem)
    found.shell(HOLD)
    return found


@pytest.mark.parametrize("used", NODES, indirect=True)
def test_what_is_in_use_is_adopted_at_the_next_boot_and_released(used: Adopted) -> None:
    used.shell(ASK)
    assert "at the next boot" in used.run("elastio status")[1]
    used.shell("udevadm trigger --action=change --name-match=$V && udevadm settle && mountpoint -q /data")
    assert not used.is_composed(), "not in this boot"
    reboot(used)
    used.require_same(is_composed=True)
    assert used.shell(ASKED) == ""
    used.cut()
    used.require_same(is_composed=True)
    used.release()
    used.require_same(is_composed=False)


@pytest.mark.parametrize("used", NODES, indirect=True)
def test_after_a_power_cut_a_journal_is_replayed_by_the_mount_and_the_boot_after_that_adopts(used: Adopted) -> None:
    """What is acknowledged, and in the journal alone, is neither refused for good nor read past."""
    late_write = f"dd if=/dev/urandom of={DATA}/late bs=4k count=4 conv=notrunc,fsync status=none"
    used.shell(f"systemctl stop holder && {WRITABLE} && {HOLD} && {ASK} && {late_write} && sync && {late_write}")
    late = used.shell(f"sha256sum {DATA}/late")
    used.vm.kill()
    used.vm.start(BOOT_S)
    require_done(used)
    assert not used.is_composed()
    assert used.shell(ASKED).endswith(".refused")
    assert "has to be replayed" in used.run("elastio status")[1]
    assert used.shell(f"sha256sum {DATA}/late") == late
    used.shell(ASK)
    reboot(used)
    assert used.is_composed()
    assert used.shell(f"sha256sum {DATA}/late") == late
    used.release()
    assert used.shell(f"sha256sum {DATA}/late") == late


def test_what_is_refused_at_the_boot_is_mounted_as_before_and_not_tried_again(used: Adopted) -> None:
    used.shell(f"{ASK} && echo data | dd of=$H conv=notrunc,fsync status=none")
    for _ in range(2):
        reboot(used)
        used.require_same(is_composed=False)
        assert used.shell(ASKED).endswith(".refused")
        assert "not blank" in used.run("elastio status")[1]
    used.shell(f"dd if=/dev/zero of=$H bs=4k count=1 conv=notrunc,fsync status=none && {ASK}")
    used.shell(f"elastio device adopt {DATA} --cancel")
    reboot(used)
    used.require_same(is_composed=False)


def test_cut_before_a_change_at_the_boot_it_is_adopted_or_mounted_as_before(used: Adopted) -> None:
    used.shell(f"mkdir -p {STOPS} && cat > {STOPS}/stop.conf <<'END'\n{DROP_IN}END\nsystemctl daemon-reload")
    number = 0
    while True:
        used.shell(f"{ASK} && echo {number} > {STOP} && sync")
        restart(used)
        used.shell(f"until test -e {REACHED} || (mountpoint -q {DATA} && ! {WORKING}); do sleep 0.5; done")
        if used.run(f"test -e {REACHED}")[0]:
            break
        used.cut()
        require_done(used)
        is_composed = used.is_composed()
        used.require_same(is_composed=is_composed)
        assert used.shell(ASKED).endswith(".refused") != is_composed
        if is_composed:
            used.release()
        number += STEP
    assert number > 3 * STEP, "it has as many changes at least"
    used.require_same(is_composed=True)
    used.release()
    used.shell(f"rm -r {STOPS} && systemctl daemon-reload")


def test_a_volume_that_was_adopted_at_boot_is_boosted_and_released() -> None:
    """Its files are what they were before, and what was written to the cache is kept."""
    image = build_guest_image(extra=PACKAGES)
    with scratch_folder("elastio-adopt-") as folder, Lab(image, Path(folder), SEED, adopted="disk/ext4") as lab:
        guest, vm, sums = lab.guest, lab.guest.vm, list[str]()
        assert isinstance(guest, AdoptedGuest)

        def run(script: str) -> str:
            return guest.check(["sh", "-c", script], timeout_s=CALL_S)

        def adopt(target: str, head: str) -> None:
            sums.append(run(SUMS))
            run(f"{HOLD}; elastio device adopt {target} --head {head} --at-boot --yes")
            assert vm.shutdown(CALL_S), vm.console_tail()
            vm.start(BOOT_S)
            run(f"until mountpoint -q {DATA}; do sleep 0.5; done; findmnt -no SOURCE {DATA} | grep bcache")

        guest.files, guest.adopt = FILES, adopt  # type: ignore[method-assign]
        lab.prepare()
        run("elastio boost --wait")
        written = run(f"dd if=/dev/urandom of={DATA}/new bs=1M count=24 conv=fsync status=none; sha256sum {DATA}/new")
        run("elastio pause && elastio flush --wait && systemctl stop elastiod")
        run(f"elastio device release {DATA} --yes; {FORGET}")
        assert (run(SUMS), run(f"sha256sum {DATA}/new")) == (sums[0], written)
        assert "bcache" not in run(f"findmnt -no SOURCE {DATA}")
