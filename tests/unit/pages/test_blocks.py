"""Every code block of README, tutorials and how-to pages is run, or listed with the reason why it is not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest

from elastio.config.schema import parse
from elastio.core.model import VolumeSpec
from elastio.registry import price_list
from elastio.strategy.tariff import HOURS_A_MONTH
from elastio.units import GIB, MB, MIB
from tests.operator import test_pages_of_adoption, test_release_created
from tests.sim_agent import SimAgent, sim_agent
from tests.unit.elastio_cli.machine import UUID

from .blocks import ADOPTION, ROOT, RUN, blocks, not_run, pages

ALL = [block for page, text in pages().items() for block in blocks(page, text)]
REASONS, NOT_RUN = not_run()
RUN_PAGES = sorted({block.page for block in ALL if block.is_run})
# The agent of the test is this one already.
BACKGROUND = re.compile(r"^elastiod --sim &$\n", re.MULTILINE)
# Quiet, two bursts of 4 GB, quiet: what `replay-a-trace.md` calls t.csv.
TRACE = "seconds,read_mb_s,write_mb_s\n0,0,1\n60,0,125\n92,0,1\n392,0,125\n424,0,1\n724,0,1\n"


def test_every_block_is_run_or_listed_with_a_reason() -> None:
    unclear = [f"{block} {block.first}" for block in ALL if block.is_run == ((block.page, block.first) in NOT_RUN)]
    assert unclear == [], f"write {RUN} before the block, or its first line into tests/unit/pages/not_run.toml"


def test_the_list_has_no_block_that_is_gone_and_no_reason_of_its_own() -> None:
    assert set(NOT_RUN) - {(block.page, block.first) for block in ALL} == set()
    assert set(NOT_RUN.values()) == set(REASONS)


def test_the_blocks_of_adoption_are_run_in_a_guest() -> None:
    run = {*test_pages_of_adoption.RUN_HERE, test_release_created.RELEASE}
    assert {(ADOPTION, first) for first in run} == {key for key, why in NOT_RUN.items() if why == "adoption"}


def test_a_new_block_is_noticed() -> None:
    page = (
        "# Page\n\n    elastio new\n\n1. item\n\n```\noutput\n```\n\n"
        + RUN
        + "\n\n    elastio one\n\n    elastio two\n"
    )
    found = [(block.first, block.is_run, block.text.count("\n")) for block in blocks("page.md", page)]
    assert found == [("elastio new", False, 1), ("output", False, 1), ("elastio one", True, 3)]


def test_marks_are_before_blocks() -> None:
    assert sum(text.count(RUN) for text in pages().values()) == sum(block.is_run for block in ALL)


@pytest.fixture
def reader(tmp_path_factory: pytest.TempPathFactory, runs_programs: None) -> Iterator[SimAgent]:
    """What a reader of the page has: a running agent, the programs, a recorded trace."""
    folder = tmp_path_factory.mktemp("reader")  # the path of a socket has at most 107 characters
    with sim_agent(folder) as agent:
        (folder / ".venv").mkdir()
        (folder / ".venv/bin").symlink_to(folder / "bin")
        (folder / "t.csv").write_text(TRACE)
        yield agent


def follow(reader: SimAgent, page: str) -> list[str]:
    """Run the blocks of the page in their order; what went wrong."""
    wrong = []
    for block in ALL:
        if block.page == page and block.is_run:
            done = reader.run("bash", "-e", "-c", BACKGROUND.sub("", block.text))
            if done.returncode != 0 or "Traceback" in done.stderr:
                wrong.append(f"{block}: exit code {done.returncode}: {done.stderr}")
    return wrong


@pytest.mark.parametrize("page", RUN_PAGES)
def test_the_blocks_of_a_page_run_one_after_the_other(reader: SimAgent, page: str) -> None:
    assert follow(reader, page) == []


def test_the_first_minute_of_the_readme_shows_a_boost(reader: SimAgent) -> None:
    assert follow(reader, "README.md") == []
    assert "an operator asked to boost" in reader.run("elastio", "--sim", "why").stdout


def test_the_money_of_the_readme_is_that_of_the_price_list() -> None:
    known = price_list("aws", {}, "us-east-1")
    assert known is not None
    (tariff,) = known.tariffs
    document = {"device": {"backing_uuid": UUID, "bandwidth_mb_s": 131}, "cache": {"bandwidth_mb_s": 500}}
    bought_mb_s = parse({**document, "provider": {"name": "aws"}}).policy().bought_bandwidth_mb_s
    sold, cache = (math.ceil(mb_s * MB / MIB) * MIB / MB for mb_s in (500, bought_mb_s))
    faster = HOURS_A_MONTH * tariff.per_mb_s_hour * (sold - tariff.included_mb_s)
    per_hour = tariff.per_hour(VolumeSpec(10 * GIB, cache))
    paragraph = " ".join((ROOT / "README.md").read_text().partition("What it saves:")[2].partition("\n\n")[0].split())
    assert f"of {tariff.date}," in paragraph
    assert f"{bought_mb_s:g} MB/s in all" in paragraph
    for amount in (f"{faster:.2f} USD more", f"{per_hour:.4f} USD an hour", f"{30 * per_hour:.2f} USD a month"):
        assert amount in paragraph
    tutorial = " ".join((ROOT / "docs/tutorial/first-boost.md").read_text().split())
    assert f"five minutes of 10 GiB at {bought_mb_s:g} MB/s cost {per_hour / 12:.4f} USD" in tutorial
