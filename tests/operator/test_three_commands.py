"""From a machine without elastio to a proven boost in three commands, each timed in the guest.

What the package depends on is on the machine already: there is no network. The times are printed (`pytest -s`); an
emulated processor takes many times as long as a real one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elastio_testbed.image import checkout_package
from tests.e2e.conftest import Lab
from tests.e2e.conftest import blank as blank  # noqa: PLC0414  the fixture
from tests.e2e.test_operator import LEFT_OUT, left, setup, shell, succeed, write_drop_in
from tests.operator.conftest import APT, APT_S, copy_in

pytestmark = pytest.mark.guest

PACKAGE = "/var/tmp/elastio.deb"
DRILL_S = 400.0


@pytest.fixture(scope="module")
def bare(blank: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A machine that never had the package, except for what the package depends on."""
    succeed(blank, *APT, "purge", "elastio", timeout_s=APT_S)
    assert blank.run("sh", "-c", "command -v elastio")[0] != 0
    copy_in(blank.guest, checkout_package(), PACKAGE, tmp_path_factory.mktemp("copied"))
    return blank


def seconds(lab: Lab) -> float:
    """The guest's own time, since it was started."""
    return float(shell(lab, "cut -d' ' -f1 /proc/uptime"))


def steps(lab: Lab) -> Iterator[str]:
    """The three commands, each by its name once it has succeeded. The laboratory's addresses are set in between."""
    installed = succeed(lab, *APT, "install", PACKAGE, timeout_s=APT_S)
    assert "update-initramfs: Generating" in installed, "the step that takes longest"
    yield "apt install"
    write_drop_in(lab, "elastio")
    setup(lab)
    yield "elastio setup"
    assert succeed(lab, "elastio", "boost", "--drill", timeout_s=DRILL_S).endswith(" 0 volumes left")
    yield "elastio boost --drill"


def test_three_commands_lead_to_a_proven_boost(bare: Lab) -> None:
    began = before = seconds(bare)
    for name in steps(bare):
        now = seconds(bare)
        print(f"{name:<22}{now - before:6.1f} s")
        before = now
    print(f"{'together':<22}{before - began:6.1f} s")
    assert left(bare) == ([], set())
    _, differing = bare.run("dpkg", "-V", "elastio")
    assert [line for line in differing.splitlines() if not line.split()[-1].startswith(LEFT_OUT)] == []
