"""`elastio quiesce`, `unquiesce`, `shutdown`, `gc`, `recover` and `janitor`: their requests and their exit codes."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted, refused
from elastio.control.status import Status
from elastio.core.cycle import CacheUse, Cycle, Timestamps, Trigger
from elastio.core.model import Serial, Volume, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.core.state import AgentState, Inhibition, InhibitionReason, Listed, Phase
from elastio.errors import HostError
from elastio.units import GIB

from .conftest import FakeAgent, Golden, Shell, published, standing
from .machine import LEAST, ROOT_MOUNT, lay

HELD = Inhibition(InhibitionReason.SNAPSHOT, 9000.0)
SAFE = published(standing(Phase.IDLE, inhibition=HELD, owned=(), listed=Listed(7990.0, 9000.0)))
OPEN = published(standing(Phase.IDLE, owned=()))


def a_volume(name: str, state: VolumeState = VolumeState.AVAILABLE, tag: VolumeTag = VolumeTag.CLEAN) -> Volume:
    return Volume(VolumeId(name), Serial(name), state, 10 * GIB, 125.0, name, "uuid", 0.0, tag)


def a_cycle(state: VolumeState = VolumeState.AVAILABLE) -> Cycle:
    return Cycle(
        token="token",
        trigger=Trigger.LOAD,
        spec=VolumeSpec(10 * GIB, 125.0),
        started_at=7000.0,
        started_wall=0.0,
        volume_id=VolumeId("vol-7"),
        serial=Serial("vol7"),
        volume=a_volume("vol-7", state),
        times=Timestamps(boosted=7010.0),
        dirty_bytes=3 * GIB,
        dirty_wall=1_790_000_000.0 - 90,
        use=CacheUse(peak_dirty_bytes=4 * GIB),
    )


def waiting(*, running: bool, state: VolumeState = VolumeState.AVAILABLE, **missing: Any) -> Status:
    """Faulted: the cache is missing."""
    shown = published(standing(Phase.FAULTED, cycle=a_cycle(state), fault="the cache is missing"), dirty_bytes=1)
    assert shown.backing is not None
    assert shown.missing is not None
    return replace(shown, missing=replace(shown.missing, waits_for_umount=running, adaptive="bcache0", **missing))


def flushing() -> Status:
    shown = published(standing(Phase.FLUSHING, cycle=a_cycle(), inhibition=HELD), dirty_bytes=GIB)
    assert shown.hold is not None
    assert not shown.hold.safe
    return shown


def commands(agent: FakeAgent) -> list[str]:
    return [str(m["command"]) for m in agent.asked]


# --- quiesce -----------------------------------------------------------------------------------------------


def test_quiesce_waits_until_the_volume_may_be_copied(agent: FakeAgent, elastio: Shell) -> None:
    agent.statuses, agent.replies = [OPEN, flushing(), flushing(), SAFE], {"quiesce": accepted("yes")}
    done = elastio("quiesce", "--timeout", "100", "--hold", "50")
    assert (done.exit_code, agent.asked[1]["seconds"]) == (Exit.OK, 150)
    assert commands(agent) == ["status", "quiesce", "status", "status", "status"]


def test_quiesce_that_times_out_ends_its_inhibition(agent: FakeAgent, elastio: Shell, golden: Golden) -> None:
    agent.statuses = [OPEN, flushing()]
    agent.replies = {"quiesce": accepted("yes"), "unquiesce": accepted("yes")}
    done = elastio("quiesce", "--timeout", "1")
    assert done.exit_code == Exit.TIMED_OUT
    golden("quiesce_timed_out.txt", done.stderr)
    assert commands(agent)[-1] == "unquiesce"


@pytest.mark.parametrize(
    ("before", "last"), [([OPEN, flushing()], "unquiesce"), ([SAFE], "status")], ids=["its own", "an earlier one"]
)
def test_quiesce_that_fails_ends_its_own_inhibition_and_no_earlier_one(
    before: list[Status], last: str, agent: FakeAgent, elastio: Shell
) -> None:
    faulted = published(standing(Phase.FAULTED, fault="the cache is missing", inhibition=HELD))
    agent.statuses = [*before, faulted]
    agent.replies = {"quiesce": accepted("yes"), "unquiesce": accepted("yes")}
    assert elastio("quiesce").exit_code == Exit.FAILED
    assert commands(agent)[-1] == last


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 1), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP)],
)
def test_quiesce_that_is_interrupted_ends_its_inhibition(
    number: signal.Signals, code: int, agent: FakeAgent, elastio: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(number)
    agent.statuses, agent.replies = [OPEN, flushing()], {"quiesce": accepted("yes"), "unquiesce": accepted("yes")}
    monkeypatch.setattr("elastio_cli.app.time.sleep", lambda _: signal.raise_signal(number))
    assert elastio("quiesce").exit_code == code
    assert commands(agent)[-1] == "unquiesce"
    assert signal.getsignal(number) is before


def test_quiesce_that_is_refused_ends_nothing(agent: FakeAgent, elastio: Shell) -> None:
    agent.statuses, agent.replies = [OPEN], {"quiesce": refused("the agent is held already (shutdown)")}
    assert elastio("quiesce").exit_code == Exit.REFUSED
    assert commands(agent) == ["status", "quiesce"]


def test_the_first_error_of_quiesce_decides_if_the_inhibition_cannot_be_ended(
    agent: FakeAgent, elastio: Shell, golden: Golden
) -> None:
    agent.statuses = [OPEN, flushing(), OPEN]
    agent.replies = {"quiesce": accepted("yes"), "unquiesce": refused("nothing is held")}
    done = elastio("quiesce")
    assert done.exit_code == Exit.TIMED_OUT
    golden("quiesce_ended_early.txt", done.stderr)


# --- shutdown -----------------------------------------------------------------------------------------------


def test_shutdown_waits_for_the_flush_and_not_for_a_cache_that_stays(agent: FakeAgent, elastio: Shell) -> None:
    elastio.app.config_path.write_text(LEAST)
    agent.replies = {"shutdown": accepted("flushing")}
    agent.statuses = [flushing(), SAFE]
    assert elastio("shutdown").exit_code == Exit.OK
    assert commands(agent) == ["shutdown", "status", "status"]
    left = Inhibition(InhibitionReason.SHUTDOWN, 9000.0, flush=False)
    agent.statuses = [published(standing(Phase.BOOSTING, cycle=a_cycle(), inhibition=left))]
    assert elastio("shutdown").exit_code == Exit.OK


@pytest.mark.parametrize(
    ("jobs", "asked"),
    [
        (" 812 reboot.target                start waiting\n 813 elastiod.service    stop  waiting\n", {"reboots": 1}),
        ("1 kexec.target start waiting\n", {"reboots": 1}),
        (" 812 poweroff.target              start waiting\n 813 elastiod.service    stop  waiting\n", {}),
        ("1 reboot.target stop waiting\n", {}),
        ("", {}),
        (None, {}),
    ],
)
def test_shutdown_distinguishes_a_reboot_from_a_power_off(
    agent: FakeAgent, elastio: Shell, jobs: str | None, asked: dict[str, int]
) -> None:
    elastio.app.config_path.write_text(LEAST)

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        if jobs is None:
            raise HostError("systemctl does not answer")
        return jobs

    agent.replies, agent.statuses = {"shutdown": accepted("done")}, [SAFE]
    assert Shell(replace(elastio.app, run=run))("shutdown").exit_code == Exit.OK
    assert {k: v for k, v in agent.asked[0].items() if k not in ("command", "version")} == asked


def test_shutdown_that_does_not_happen_is_cancelled_and_waits_for_nothing(agent: FakeAgent, elastio: Shell) -> None:
    agent.replies = {"shutdown": accepted("boosts may begin again")}
    result = elastio("shutdown", "--cancel")
    assert (result.exit_code, result.stdout) == (Exit.OK, "boosts may begin again\n")
    assert (commands(agent), agent.asked[0]["cancels"]) == (["shutdown"], True)


def test_shutdown_without_a_configuration_waits_as_long_as_the_agent_flushes(agent: FakeAgent, elastio: Shell) -> None:
    agent.statuses = [flushing(), flushing(), published(standing(Phase.IDLE))]
    agent.replies = {"shutdown": accepted("flushing")}
    assert elastio("shutdown").exit_code == Exit.OK
    assert commands(agent) == ["shutdown", "status", "status", "status"]


# --- gc -----------------------------------------------------------------------------------------------------


OWNED = (
    a_volume("vol-7"),
    a_volume("vol-8"),
    a_volume("vol-9", tag=VolumeTag.UNKNOWN),
    a_volume("vol-a", VolumeState.ELSEWHERE),
)
# The agent of the other backing device is gone or has another configuration: nothing else shows that it costs money.
OTHER = replace(a_volume("vol-9"), backing_uuid="another-uuid")


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("boosting", standing(Phase.BOOSTING, cycle=a_cycle(), owned=OWNED)),
        ("idle", standing(Phase.IDLE, owned=(a_volume("vol-8"),), others=(OTHER,), loss_accepted_for="vol-8")),
    ],
)
def test_gc_lists_what_it_would_do_with_each_volume_and_requests_nothing(
    name: str, seen: AgentState, agent: FakeAgent, elastio: Shell, golden: Golden
) -> None:
    agent.statuses = [published(replace(seen, listed=Listed(7990.0, 9000.0)))]
    golden(f"gc_{name}.txt", elastio("gc", "--dry-run").output)
    assert commands(agent) == ["status"]


def test_gc_waits_until_orphans_are_released(agent: FakeAgent, elastio: Shell) -> None:
    orphaned = published(standing(Phase.IDLE, owned=(a_volume("vol-8"),), listed=Listed(7990.0, 9000.0)))
    agent.statuses, agent.replies = [OPEN, OPEN, orphaned, SAFE], {"gc": accepted("listing")}
    done = elastio("gc")
    assert done.exit_code == Exit.OK
    assert commands(agent) == ["status", "gc", "status", "status", "status"]


# --- recover ------------------------------------------------------------------------------------------------


def test_recover_names_the_volume_and_the_order_and_waits(agent: FakeAgent, elastio: Shell, golden: Golden) -> None:
    agent.statuses = [waiting(running=False), waiting(running=False), OPEN]
    agent.replies = {"recover": accepted("it is being looked for")}
    done = elastio("recover")
    assert done.exit_code == Exit.OK
    golden("recover.txt", done.output)
    assert agent.asked[1] == {"version": 1, "command": "recover", "accepts_loss": 0}


def test_recover_unmounts_first(agent: FakeAgent, elastio: Shell, golden: Golden) -> None:
    ran: list[Sequence[str]] = []

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        assert "recover" not in commands(agent)
        ran.append(argv)
        lay(root, proc__self__mountinfo=ROOT_MOUNT)
        return ""

    root = elastio.app.root
    lay(
        root,
        sys__block__bcache0__dev="251:0",
        proc__self__mountinfo=f"{ROOT_MOUNT}9 22 251:0 / /da\\040ta rw - ext4 /dev/bcache0 rw\n",
    )
    agent.statuses = [waiting(running=True), OPEN]
    agent.replies = {"recover": accepted("yes")}
    refusing = elastio("recover")
    assert refusing.exit_code == Exit.FAILED
    golden("recover_mounted.txt", refusing.stderr)
    agent.statuses = [waiting(running=True), OPEN]
    agent.asked.clear()
    simulated = Shell(replace(elastio.app, run=run, is_simulated=True))  # its device is another one
    assert (simulated("recover", "--umount").exit_code, ran) == (Exit.OK, [])
    agent.statuses = [waiting(running=True), OPEN]
    agent.asked.clear()
    assert Shell(replace(elastio.app, run=run))("recover", "--umount").exit_code == Exit.OK
    assert ran == [["umount", "--", "/da ta"]]


@pytest.mark.parametrize(("typed", "code"), [("vol-7\n", Exit.OK), ("yes\n", Exit.FAILED), ("\n", Exit.FAILED)])
def test_the_loss_of_data_is_accepted_by_typing_the_volumes_name(
    typed: str, code: Exit, agent: FakeAgent, elastio: Shell
) -> None:
    agent.statuses = [waiting(running=False, state=VolumeState.GONE), OPEN]
    agent.replies = {"recover": accepted("the device goes on without its cache")}
    assert elastio("recover", "--accept-data-loss", stdin=typed).exit_code == code
    assert ("recover" in commands(agent)) is (code is Exit.OK)


@pytest.mark.parametrize(("typed", "code"), [("vol-7\n", Exit.OK), ("\n", Exit.FAILED)])
def test_cache_that_may_be_older_is_brought_back_by_typing_its_name(
    typed: str, code: Exit, agent: FakeAgent, elastio: Shell
) -> None:
    agent.statuses = [waiting(running=False, may_be_older=True), OPEN]
    agent.replies = {"recover": accepted("it is being brought back")}
    order = ("recover", "--bring-back", "--volume", "vol-7")
    assert elastio(*order).exit_code == elastio("recover", "--bring-back", "--accept-data-loss").exit_code == Exit.USAGE
    assert elastio(*order, "--accept-data-loss", stdin=typed).exit_code == code
    sent = {"version": 1, "command": "recover", "accepts_loss": 1, "brings_back": 1, "volume_id": "vol-7"}
    assert (sent in agent.asked) is (code is Exit.OK)


@pytest.mark.parametrize(("typed", "code"), [("accept the loss\n", Exit.OK), ("yes\n", Exit.FAILED)])
def test_fault_that_may_lose_data_is_ended_by_typing_so(
    typed: str, code: Exit, agent: FakeAgent, elastio: Shell
) -> None:
    agent.replies = {"resume": accepted("boosts start by themselves again")}
    assert elastio("resume", "--accept-data-loss", stdin=typed).exit_code == code
    assert ({"version": 1, "command": "resume", "accepts_loss": 1} in agent.asked) is (code is Exit.OK)


LACKING = standing(Phase.FAULTED, cycle=replace(a_cycle(), may_lack_data=True), fault="an older copy")


@pytest.mark.parametrize(
    ("name", "seen", "refusal"),
    [
        ("may_lack_data", published(LACKING), "attach the right backing volume instead"),
        ("may_be_older", waiting(running=False, may_be_older=True), "the device was clean when its cache went"),
    ],
)
def test_what_may_lack_data_is_left_to_the_operator(
    name: str, seen: Status, refusal: str, agent: FakeAgent, elastio: Shell, golden: Golden
) -> None:
    agent.statuses, agent.replies = [seen], {"recover": refused(refusal)}
    done = elastio("recover")
    assert done.exit_code == Exit.REFUSED
    golden(f"recover_{name}.txt", done.output)


def test_a_loss_is_accepted_only_once_the_unmounted_device_is_registered_again(
    agent: FakeAgent, elastio: Shell
) -> None:
    lay(elastio.app.root, proc__self__mountinfo=ROOT_MOUNT)
    gone = waiting(running=False)
    agent.statuses = [waiting(running=True), waiting(running=True), replace(gone, backing=None), gone, OPEN]
    agent.replies = {"recover": accepted("the device goes on without its cache")}
    assert elastio("recover", "--umount", "--accept-data-loss", "--volume", "vol-7", "--yes").exit_code == Exit.OK
    assert commands(agent) == ["status", "status", "status", "status", "recover", "status"]
    assert agent.asked[4] == {"version": 1, "command": "recover", "accepts_loss": 1, "volume_id": "vol-7"}


def test_the_missing_cache_is_shown_also_while_its_device_is_dropped() -> None:
    shown = waiting(running=False)
    assert shown.missing is not None
    assert shown.missing.dirty_bytes == 3 * GIB
    assert Status.from_json(json.loads(json.dumps(shown.to_json()))) == shown


# --- janitor ------------------------------------------------------------------------------------------------


@pytest.fixture
def fleet(toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A provider that sees a whole account of three volumes; what it deletes is written down."""
    package = tmp_path / "site" / "toypackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "provider.py").write_text("def open_provider(settings, uuid):\n    return None\n")
    (package / "fleet.py").write_text(
        "from elastio.errors import AuthError\n"
        "from elastio.janitor import FleetVolume\n"
        "from elastio.core.model import VolumeTag\n"
        "from pathlib import Path\n"
        "ALL = [FleetVolume(f'vol-{m}', 'available', True, 2**30, 'arn', 'uuid', m, 1.0) for m in VolumeTag]\n"
        "class Fleet:\n"
        "    def __init__(self, settings):\n"
        "        self.file = settings['file']\n"
        "    def volumes(self):\n"
        "        return iter(ALL)\n"
        "    def volume(self, name):\n"
        "        return next(v for v in ALL if v.id == name)\n"
        "    def delete(self, name):\n"
        "        if self.file == 'refuse':\n"
        "            raise AuthError('not allowed')\n"
        "        Path(self.file).write_text(name)\n"
        "open_fleet = Fleet\n"
    )
    points = tmp_path / "site" / "toy-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "account = toypackage.provider:open_provider\n")
    for module in ("toypackage", "toypackage.provider", "toypackage.fleet"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path / "deleted"


def test_the_janitor_deletes_only_what_is_tagged_clean(fleet: Path, elastio: Shell) -> None:
    args = ("janitor", "--provider", "account", "--set", f"file={fleet}", "--json")
    rows = [json.loads(line) for line in elastio(*args, "--dry-run").output.splitlines()]
    assert {r["tag"]: r["outcome"] for r in rows} == {"unknown": "kept", "dirty": "kept", "clean": "would delete"}
    assert not fleet.exists()
    assert elastio(*args).exit_code == Exit.OK
    assert fleet.read_text() == "vol-clean"


def test_the_janitor_fails_when_a_deletion_fails(fleet: Path, elastio: Shell, golden: Golden) -> None:
    done = elastio("janitor", "--provider", "account", "--set", "file=refuse")
    assert done.exit_code == Exit.FAILED
    golden("janitor_failed.txt", done.output)


def test_a_provider_that_does_not_list_an_account_is_an_error_of_the_configuration(fleet: Path, elastio: Shell) -> None:
    assert elastio("janitor", "--provider", "toy").exit_code == Exit.CONFIG
