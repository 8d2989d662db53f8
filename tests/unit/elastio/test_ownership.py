"""Who may read and change what the agent relies on, and what never stands in its files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio.agent.journal import Journal
from elastio.config.schema import load
from elastio.errors import ConfigError, HostError, JournalError
from elastio.host.instance_lock import lock_device

CONFIG = """[device]
backing_uuid = "58c00623-0529-4a44-9474-dabb02496928"
bandwidth_mb_s = 33
[cache]
bandwidth_mb_s = 128
[provider]
name = "aws"
"""


@pytest.fixture
def open_mask() -> Iterator[None]:
    """As a careless service manager leaves it: what is private is so by its own mode."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "elastio.toml"
    path.write_text(CONFIG)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- configuration ---------------------------------------------------------------------------------------------------


def test_a_configuration_that_every_user_can_change_is_not_used(config: Path) -> None:
    config.chmod(0o646)
    with pytest.raises(ConfigError) as refused:
        load(config)
    assert refused.value.code == "file.mode"
    config.chmod(0o644)
    assert load(config).provider.name == "aws"


def test_a_drop_in_is_checked_like_the_file(config: Path) -> None:
    extra = config.with_name("elastio.toml.d") / "cap.toml"
    extra.parent.mkdir()
    extra.write_text("[caps]\nmax_boosts_per_day = 1\n")
    extra.chmod(0o666)
    with pytest.raises(ConfigError) as refused:
        load(config)
    assert refused.value.code == "file.mode"


def test_a_configuration_of_another_user_is_not_used(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen from a user who is neither root nor its owner, because only root can give a file away."""
    os.chown(config, os.geteuid() or 65534, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError) as refused:
        load(config)
    assert refused.value.code == "file.owner"


# --- journal and lock ------------------------------------------------------------------------------------------------


def test_journal_and_lock_are_private_whatever_the_mask(tmp_path: Path, open_mask: None) -> None:
    journal = Journal(tmp_path / "state" / "journal.jsonl", "boot")
    journal.open()
    journal.close()
    os.close(lock_device(tmp_path / "run", "uuid"))
    assert mode(journal.path) & 0o037 == 0
    assert mode(tmp_path / "run" / "uuid.lock") == 0o600


def test_a_journal_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious\n")
    (tmp_path / "journal.jsonl").symlink_to(target)
    with pytest.raises(JournalError, match="cannot open the journal"):
        Journal(tmp_path / "journal.jsonl", "boot").open()
    assert target.read_text() == "precious\n"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "uuid.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError):
        lock_device(tmp_path, "uuid")
    assert not (tmp_path / "elsewhere").exists()
