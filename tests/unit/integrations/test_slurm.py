"""Prolog and epilog, run as slurmd runs them, against `elastiod --sim`."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.units import GIB
from tests.sim_agent import SimAgent

TABLE = "# partition command\nimport boost --size 2\ncm1 expect --in 13m --size 5G\nodd pause\n"


class Node:
    """A compute node with this table of partitions."""

    def __init__(self, agent: SimAgent, folder: Path, tmp_path: Path) -> None:
        self.agent, self._folder, self._tmp = agent, folder, tmp_path
        (tmp_path / "partitions").write_text(TABLE)
        self.jobs = tmp_path / "jobs"

    def run(self, script: str, partition: str, job: int, table: str = "partitions", **others: str) -> int:
        variables = {
            **others,
            "ELASTIO_PARTITIONS": str(self._tmp / table),
            "ELASTIO_JOBS": str(self.jobs),
            "SLURM_JOB_PARTITION": partition,
            "SLURM_JOB_ID": str(job),
        }
        return self.agent.run(self._folder / "slurm" / f"{script}.sh", **variables).returncode


@pytest.fixture
def node(agent: SimAgent, folder: Path, tmp_path: Path) -> Node:
    return Node(agent, folder, tmp_path)


def test_a_job_that_writes_at_once_gets_its_cache_and_the_last_job_flushes_it(node: Node) -> None:
    assert node.run("prolog", "import", 1) == 0
    assert node.run("prolog", "other", 2) == 0
    assert node.agent.status().phase in {"attaching", "boosting"}
    assert node.run("epilog", "import", 1) == 0
    assert node.agent.status().phase in {"attaching", "boosting"}, "a job of the node is left"
    assert node.run("epilog", "other", 2) == 0
    assert node.agent.status().phase in {"flushing", "detaching", "idle"}
    assert not node.jobs.exists()


def test_a_burst_of_a_job_is_announced(node: Node) -> None:
    assert node.run("prolog", "cm1", 3) == 0
    (announced,) = node.agent.status().expected
    assert announced.size_bytes == 5 * GIB
    assert node.run("epilog", "cm1", 3) == 0


def test_each_of_several_devices_is_named_by_the_table_and_all_are_flushed(node: Node, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    elastio = tmp_path / "elastio"
    elastio.write_text(f'#!/bin/sh\necho "$*" >>{asked}\n')
    elastio.chmod(0o755)
    (tmp_path / "two").write_text("both expect --in 5m --device data\nboth boost --device scratch --size 2\n")
    assert node.run("prolog", "both", 5, "two", ELASTIO=str(elastio)) == 0
    assert node.run("epilog", "both", 5, "two", ELASTIO=str(elastio)) == 0
    assert asked.read_text().splitlines() == [
        "expect --in 5m --device data",
        "boost --device scratch --size 2",
        "flush --all",
    ]


@pytest.mark.parametrize(("partition", "table"), [("other", "partitions"), ("odd", "partitions"), ("cm1", "missing")])
def test_what_the_table_does_not_say_changes_nothing(node: Node, partition: str, table: str) -> None:
    assert node.run("prolog", partition, 4, table) == 0
    status = node.agent.status()
    assert (status.phase, status.paused, status.expected) == ("idle", False, ())


@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_no_agent_drains_no_node(node: Node, script: str, tmp_path: Path) -> None:
    node.jobs.mkdir()
    done = node.agent.run(
        Path(__file__).parents[3] / "integrations/slurm" / f"{script}.sh",
        ELASTIO=str(tmp_path / "missing"),
        ELASTIO_JOBS=str(node.jobs),
        ELASTIO_PARTITIONS=str(tmp_path / "partitions"),
        SLURM_JOB_PARTITION="import",
    )
    assert done.returncode == 0
