"""The volume is `group/data` on vdb, and the head gets a logical volume beside it: LVM as its manuals have it.

What a group has outlasts a boot; a device that is activated gets another number each time. Extents have what was on
them before.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elastio.errors import HostError
from elastio.host.heads import BLOCK_BYTES
from elastio.units import MIB, SECTOR
from elastio_setup.adopt_plan import AdoptPlan
from tests.values import present

from .adopt_machine import UUID, VOLUME_BYTES, AdoptMachine

GROUP_UUID = "GrOuP0-aaaa-bbbb-cccc-dddd-eeee-ffffff"
DATA_UUID = "DaTa00-aaaa-bbbb-cccc-dddd-eeee-ffffff"
EXTENT = 4 * MIB // SECTOR
NAMES = ("data", "other")
STALE = b"STALE!!!" * (16 * MIB // 8)


def physical(name: str = "/dev/vdb", *, free: int = 8, **fields: str) -> dict[str, str]:
    """A row of `pvs`; `free` extents."""
    row = {"vg_name": "group", "vg_uuid": GROUP_UUID, "vg_attr": "wz--n-", "vg_extent_size": str(EXTENT)}
    return {**row, "pv_name": name, "pv_free": str(free * EXTENT), "pv_allocatable": "allocatable", **fields}


def logical(name: str, uuid: str, **fields: str) -> dict[str, str]:
    """A row of `lvs`."""
    row = {"vg_name": "group", "vg_uuid": GROUP_UUID, "vg_attr": "wz--n-", "lv_name": name, "lv_uuid": uuid}
    return {**row, "lv_tags": "", "lv_layout": "linear", "lv_role": "public", **fields}


def mapped(row: dict[str, str]) -> str:
    return "LVM-" + (row["vg_uuid"] + row["lv_uuid"]).replace("-", "")


@dataclass
class LvmMachine(AdoptMachine):
    """`physicals` and `logicals`: what `pvs` and `lvs` show. `activates`: the head is active after a boot.

    `may_activate` False: lvchange activates nothing, and succeeds, as with lvm.conf's volume_list.
    `is_other_broken`: in a report about all groups, `lvs` fails for another one.
    """

    found: dict[str, dict[str, str]] = field(default_factory=lambda: {"dm-1": {"TYPE": "ext4", "UUID": UUID}})
    physicals: list[dict[str, str]] = field(default_factory=lambda: [physical()])
    logicals: list[dict[str, str]] = field(
        default_factory=lambda: [logical("data", DATA_UUID), logical("other", DATA_UUID.replace("a", "b"))]
    )
    activates: bool = True
    may_activate: bool = True
    is_other_broken: bool = False
    activated: int = 1
    device, number = "dm-1", "240:64"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.disk("dm-1", 64, "", self.sysfs.path("dev/vdb").read_bytes()[:VOLUME_BYTES])
        self.lay("sys/block/dm-1/dm/uuid", mapped(self.logicals[0]))
        self.lay("sys/block/dm-1/dm/name", "group-data")
        self.link("sys/block/dm-1/slaves/vdb", "../../vdb")
        self.lay("usr/sbin/lvm", "")
        self.link("dev/group/data", "../dm-1")
        self.before = self.volume

    # --- what tests look at --------------------------------------------------------------------------------

    @property
    def made(self) -> list[dict[str, str]]:
        """Every logical volume but those that were there before."""
        return [row for row in self.logicals if row["lv_name"] not in NAMES]

    @property
    def is_as_before(self) -> bool:
        rest = [row["lv_name"] for row in self.logicals]
        return (self.volume, rest, self.records, self.is_composed) == (self.before, list(NAMES), [], False)

    @property
    def head_device(self) -> str:  # type: ignore[override]
        return present(self.node_of(self.made[-1]))

    @property
    def head_number(self) -> str:  # type: ignore[override]
        return self.sysfs.read(f"sys/block/{self.head_device}/dev")

    def node_of(self, row: dict[str, str]) -> str | None:
        names = (name for name in self.sysfs.names("sys/block") if name != "dm-0")
        return next((n for n in names if self.sysfs.read_or(f"sys/block/{n}/dm/uuid", "") == mapped(row)), None)

    # --- what it does --------------------------------------------------------------------------------------

    def plan(self, target: str = "dev/dm-1", head: str | None = None) -> AdoptPlan:
        return super().plan(target, head)

    def power_off(self) -> None:
        super().power_off()
        for row in self.made:
            self.deactivate(row)
            if self.activates:
                self.activate(row)

    def content_of(self, row: dict[str, str]) -> Path:
        return self.root / f"content-{row['lv_uuid']}"

    def activate(self, row: dict[str, str]) -> None:
        self.activated += 1
        name, content = f"dm-{self.activated}", self.content_of(row)
        self.disk(name, 100 + self.activated, "", content.read_bytes())
        self.lay(f"sys/block/{name}/dm/uuid", mapped(row))
        self.link(f"sys/block/{name}/slaves/vdb", "../../vdb")
        self.sysfs.path(f"dev/{name}").unlink()
        os.link(content, self.sysfs.path(f"dev/{name}"))

    def deactivate(self, row: dict[str, str]) -> None:
        if (name := self.node_of(row)) is not None:
            shutil.rmtree(self.sysfs.path(f"sys/block/{name}"))
            self.sysfs.path(f"sys/class/block/{name}").unlink()
            self.sysfs.path(f"dev/{name}").unlink()

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        rows = {"lvs": ("lv", self.logicals), "pvs": ("pv", self.physicals)}
        if argv[0] in rows and argv[0] not in self.failing:
            key, shown = rows[argv[0]]
            shown, fields = self._reported(argv, shown), argv[-1].split(",")
            return json.dumps({"report": [{key: [{name: row[name] for name in fields} for row in shown]}]})
        return super().run(argv, timeout_s=timeout_s)

    def _reported(self, argv: Sequence[str], rows: list[dict[str, str]]) -> list[dict[str, str]]:
        """Those of the group that is named, or all."""
        if not argv[1].startswith("-"):
            return [row for row in rows if row["vg_name"] == argv[1]]
        if self.is_other_broken:
            raise HostError("`lvs` failed (5): Cannot process volume group other", code="program.failed")
        return rows

    @property
    def changing(self) -> dict[str, Callable[[Sequence[str]], str]]:
        own = {"lvcreate": self._lvcreate, "lvremove": self._lvremove, "lvchange": self._lvchange}
        return {**super().changing, **own}

    def _lvcreate(self, argv: Sequence[str]) -> str:
        """Group and tag are committed, then the volume is activated and its begin wiped."""
        value = dict(itertools.pairwise(argv))
        assert (value["--zero"], value["--wipesignatures"], value["--type"]) == ("y", "y", "linear")
        number = len(self.made) + 1
        row = logical(value["--name"], f"HeaD{number:02}-aaaa-bbbb-cccc-dddd-eeee-ffffff", lv_tags=value["--addtag"])
        assert argv[-2:] == ["group", self.physicals[-1]["pv_name"]]
        size = int(value["--extents"]) * EXTENT * SECTOR
        self.content_of(row).write_bytes((STALE * (size // len(STALE) + 1))[:size])
        self.logicals.append(row)
        self.change()
        with self.content_of(row).open("r+b") as file:
            file.write(bytes(BLOCK_BYTES))
        self.activate(row)
        return ""

    def _lvremove(self, argv: Sequence[str]) -> str:
        """Deactivated, then committed."""
        wanted = dict(part.split("=") for part in argv[argv.index("--select") + 1].split(" && "))
        for row in self._matching(wanted.items()):
            assert not self.sysfs.exists("sys/block/dm-0"), "EBUSY"
            self.deactivate(row)
            self.change()
            self.logicals.remove(row)
        return ""

    def _matching(self, wanted: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
        pairs = tuple(wanted)
        return [row for row in self.logicals if all(row[key] == value for key, value in pairs)]

    def _lvchange(self, argv: Sequence[str]) -> str:
        assert list(argv[:-1]) == ["lvchange", "--yes", "--activate", "y"]
        group, name = argv[-1].split("/")
        found = self._matching((("vg_name", group), ("lv_name", name)))
        if len(found) != 1:
            raise HostError("`lvchange` failed (5): not found", code="program.failed")
        if self.may_activate:
            self.activate(found[0])
        return ""
