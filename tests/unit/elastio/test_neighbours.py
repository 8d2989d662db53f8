"""Several configurations beside each other: of other devices, for the same device, with shared caps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elastio.config.neighbours import UNKNOWN_CAPS, require_only_one
from elastio.config.schema import load
from elastio.errors import ConfigError
from tests.fixtures.errors import refused
from tests.fixtures.least_configuration import LEAST_TOML, UUID

OTHER = "22222222-89ab-cdef-0123-456789abcdef"


def several(folder: Path, **caps: str) -> list[Path]:
    """The configurations of devices of these names that share the given caps."""
    folder.mkdir(exist_ok=True)
    paths = []
    for number, (name, text) in enumerate(caps.items()):
        paths.append(folder / f"{name}.toml")
        uuid = UUID.replace(UUID[:8], f"{number:08}")
        paths[-1].write_text(f"{LEAST_TOML.replace(UUID, uuid)}[caps]\nshared = true\n{text}\n")
    return paths


def test_two_configurations_for_one_backing_device_are_refused(tmp_path: Path) -> None:
    for name in ("data", "kept", "elastio"):
        (tmp_path / f"{name}.toml").write_text(LEAST_TOML)
    for name in ("data", "kept"):
        with refused(ConfigError, "device.backing_uuid"):
            require_only_one(tmp_path / f"{name}.toml", UUID)
    require_only_one(tmp_path / "elastio.toml", UUID)  # a copy beside it must not stop an agent that ran before
    require_only_one(tmp_path / "data.toml", OTHER)


def test_the_lowest_of_shared_caps_is_in_force(tmp_path: Path) -> None:
    first, second, _ = several(
        tmp_path, a="max_cost_per_day = 3\nmax_boosts_per_day = 9", b="max_cost_per_day = 2", c="max_agbs_per_day = 7"
    )
    own = tmp_path / "own.toml"
    own.write_text(LEAST_TOML.replace(UUID, OTHER) + "[caps]\nmax_cost_per_day = 1\n")
    caps = [load(path).policy().caps for path in (first, second)]
    assert [(c.max_cost_per_day, c.max_boosts_per_day, c.max_agbs_per_day) for c in caps] == [(2.0, 9, 7.0)] * 2
    assert load(own).policy().caps.max_boosts_per_day is None, "it shares nothing"


def invalid(path: Path) -> None:
    path.write_text("[")


def misspelt(path: Path) -> None:
    path.write_text(path.read_text().replace("per_day", "per_dya"))


def writable(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize("spoil", [invalid, misspelt, writable])
def test_shared_caps_are_unknown_while_a_neighbour_that_may_hold_the_lowest_cannot_be_read(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    first, second = several(tmp_path, a="max_cost_per_day = 3", b="max_cost_per_day = 2")
    own = tmp_path / "own.toml"
    own.write_text(LEAST_TOML.replace(UUID, OTHER))
    spoil(second)
    with refused(ConfigError, UNKNOWN_CAPS):
        load(first)
    load(own)
    second.unlink()
    second.symlink_to(tmp_path / "nothing")
    assert load(first).caps.max_cost_per_day == 3


def test_devices_that_share_their_caps_have_one_place_for_them(tmp_path: Path) -> None:
    first, second = several(tmp_path, a="max_cost_per_day = 3", b="max_cost_per_day = 3")
    second.write_text(second.read_text() + '[agent]\nstate_dir = "/srv/elastio/devices/b"\n')
    for path in (first, second):
        with refused(ConfigError, "agent.state_dir"):
            load(path)
