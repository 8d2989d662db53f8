"""`elastio device create`: its output. The checks themselves are tested with `setup.format_backing`."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.control.exit_codes import Exit

from .conftest import Golden, Shell
from .machine import ROOT_MOUNT, UUID, lay


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def with_disk(elastio: Shell, tmp_path: Path, ran: list[str]) -> Shell:
    """A blank vdz and programs that print what the real ones print."""
    lay(
        tmp_path / "root",
        sys__class__block__vdz__size="2097152",
        sys__class__block__vdz__queue__logical_block_size="512",
        sys__fs__bcache__register_quiet="",
        proc__self__mountinfo=ROOT_MOUNT,
    )
    os.mknod(tmp_path / "vdz", stat.S_IFBLK | 0o600, os.makedev(240, 77))

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        ran.append(argv[0])
        if argv[0] == "make-bcache":
            bcache = tmp_path / "root/sys/class/block/vdz/bcache"
            bcache.mkdir()
            (bcache / "backing_dev_uuid").write_text(UUID)
            (bcache / "dev").symlink_to("../../bcache0")
        return f"UUID:\t\t\t{UUID}\n" if argv[0] == "make-bcache" else ""

    return Shell(replace(elastio.app, run=run))


def test_prints_uuid_device_and_next_steps(with_disk: Shell, tmp_path: Path, golden: Golden) -> None:
    result = with_disk("device", "create", f"{tmp_path}/vdz", "--yes")
    assert result.exit_code == Exit.OK, result.output
    golden("device_create.txt", result.stdout)


def test_asks_first_and_changes_nothing_on_no(with_disk: Shell, tmp_path: Path, ran: list[str], golden: Golden) -> None:
    result = with_disk("device", "create", f"{tmp_path}/vdz", stdin="n\n")
    assert (result.exit_code, ran) == (Exit.FAILED, ["wipefs"])
    golden("device_create_declined.txt", result.stdout)


def test_a_refusal_is_one_sentence(with_disk: Shell, tmp_path: Path, ran: list[str], golden: Golden) -> None:
    lay(tmp_path / "root", sys__block__vdz__holders__dm0="")
    result = with_disk("device", "create", f"{tmp_path}/vdz", "--yes")
    assert (result.exit_code, ran) == (Exit.FAILED, [])
    golden("device_create_refused.txt", result.stderr)
