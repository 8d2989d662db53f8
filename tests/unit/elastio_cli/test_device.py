"""`elastio device create`: its output. The checks themselves are tested with `setup.format_backing`."""

from __future__ import annotations

import os
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
    (tmp_path / "vdz").touch()
    os.truncate(tmp_path / "vdz", 2**30)

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


def test_a_question_that_nobody_can_answer_is_no(with_disk: Shell, tmp_path: Path, ran: list[str]) -> None:
    result = with_disk("device", "create", f"{tmp_path}/vdz")
    assert (result.exit_code, ran) == (Exit.FAILED, ["wipefs"])
    assert "--yes" in result.stderr


def test_a_refusal_is_one_sentence(with_disk: Shell, tmp_path: Path, ran: list[str], golden: Golden) -> None:
    lay(tmp_path / "root", sys__block__vdz__holders__dm0="")
    result = with_disk("device", "create", f"{tmp_path}/vdz", "--yes")
    assert (result.exit_code, ran) == (Exit.FAILED, [])
    golden("device_create_refused.txt", result.stderr)


def test_data_is_only_formatted_by_force_and_the_question_says_so(
    with_disk: Shell, tmp_path: Path, ran: list[str], golden: Golden
) -> None:
    with (tmp_path / "vdz").open("r+b") as device:
        device.write(b"a database without a filesystem")
    result = with_disk("device", "create", f"{tmp_path}/vdz", "--yes")
    assert (result.exit_code, ran) == (Exit.FAILED, ["wipefs"])
    golden("device_create_not_blank.txt", result.stderr)
    asked = with_disk("device", "create", f"{tmp_path}/vdz", "--force", stdin="n\n")
    assert (asked.exit_code, set(ran)) == (Exit.FAILED, {"wipefs"})
    golden("device_create_forced.txt", asked.stdout)
    assert with_disk("device", "create", f"{tmp_path}/vdz", "--force", "--yes").exit_code == Exit.OK
    assert "make-bcache" in ran


@pytest.mark.parametrize("more", [(), ("--force",)])
def test_what_is_written_while_the_question_waits_is_not_formatted(
    more: tuple[str, ...], with_disk: Shell, tmp_path: Path, ran: list[str]
) -> None:
    """The answer was about a blank volume, also with --force."""

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        if argv[0] == "wipefs" and "wipefs" in ran:
            (tmp_path / "vdz").write_bytes(b"x" * 4096)
        return with_disk.app.run(argv, timeout_s=timeout_s)

    shell = Shell(replace(with_disk.app, run=run))
    assert shell("device", "create", f"{tmp_path}/vdz", *more, stdin="y\n").exit_code == Exit.FAILED
    assert "make-bcache" not in ran
