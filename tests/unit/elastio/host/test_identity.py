"""The machine's identity, as firmware shows it."""

from __future__ import annotations

import pytest

from elastio.host.machine import DMI, machine_id
from tests.fixtures.sysfs_tree import Tree

UUID = "ec2a1f0b-1111-4222-8333-444455556666"


@pytest.mark.parametrize(
    ("tag", "product_uuid", "expected"),
    [
        ("i-0123456789abcdef0", UUID, "i-0123456789abcdef0"),
        ("", UUID.upper(), UUID),
        ("Not Specified", UUID, UUID),
        ("i-am-a-workstation", UUID, UUID),
        ("", "Not Settable", ""),
        ("", "00000000-0000-0000-0000-000000000000", ""),
        ("", "03000200-0400-0500-0006-000700080009", ""),
    ],
)
def test_a_machine_is_named_by_its_firmware(tree: Tree, tag: str, product_uuid: str, expected: str) -> None:
    tree.kernel.lay(f"{DMI}/board_asset_tag", tag)
    tree.kernel.lay(f"{DMI}/product_uuid", product_uuid)
    assert machine_id(tree.kernel) == expected


def test_a_machine_id_that_every_copy_of_an_image_has_is_not_an_identity(tree: Tree) -> None:
    tree.kernel.lay("etc/machine-id", "0123456789abcdef0123456789abcdef")
    assert machine_id(tree.kernel) == ""
