"""The table of distributions and kernels is made from kernel configurations."""

from __future__ import annotations

import pytest

from elastio_testbed import kernels

CONFIG = """\
CONFIG_MD=y
CONFIG_BCACHE=m
# CONFIG_BCACHE_DEBUG is not set
CONFIG_LOCALVERSION=""
CONFIG_BLK_DEV_THROTTLING=y
"""
WITHOUT = "CONFIG_MD=y\n# CONFIG_BCACHE is not set\n"


def test_options_of_a_configuration_are_read() -> None:
    found = kernels.options(CONFIG)
    assert found == {
        "CONFIG_MD": "y",
        "CONFIG_BCACHE": "m",
        "CONFIG_BCACHE_DEBUG": "n",
        "CONFIG_LOCALVERSION": "",
        "CONFIG_BLK_DEV_THROTTLING": "y",
    }


def test_each_flavour_of_a_package_is_a_kernel() -> None:
    files = [("config.amd64_rt_amd64.xz", CONFIG), ("config.amd64_none_cloud-amd64.xz", WITHOUT), ("README", CONFIG)]
    found = list(kernels.read("linux-config-6.1", "6.1.1-1", files))
    assert [(k.distribution, k.kernel, k.bcache, k.throttling) for k in found] == [
        ("Debian 12", "6.1.1-1, rt-amd64", "m", "y"),
        ("Debian 12", "6.1.1-1, cloud-amd64", "n", "n"),
    ]


def test_the_page_has_the_kept_rows() -> None:
    page = kernels.PAGE.read_text()
    assert kernels.with_table(page, kernels.table(kernels.kept())) == page


def test_every_row_has_a_source_and_a_known_or_admitted_value() -> None:
    rows = kernels.kept()
    assert all(row.source for row in rows)
    assert {value for row in rows for value in (row.bcache, row.throttling)} <= {*kernels.MEANING, kernels.UNKNOWN}
    assert set(kernels.DISTRIBUTIONS.values()) <= {row.distribution for row in rows if row.bcache == "m"}


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="kernels"):
        kernels.with_table("# Page\n", "rows")
