"""What a boost and a fault leave in the journal of systemd, and in a Prometheus that scrapes the guest.

Its metrics are served as node_exporter would, from the file that the timer's service writes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from elastio_testbed.faults.consistency import SLOWER
from elastio_testbed.faults.fault_target import DEADLINE_S
from elastio_testbed.polling import until
from tests.faults.conftest import Target
from tests.operator.conftest import end_load, load, shell, succeed
from tests.operator.prometheus import Prometheus, dashboard_queries, free_port, prometheus

pytestmark = pytest.mark.guest

PORT = 9100
COLLECTOR = "/var/lib/prometheus/node-exporter"
SERVER = f"""import functools, http.server
class Files(http.server.SimpleHTTPRequestHandler):
    extensions_map = {{".prom": "text/plain; version=0.0.4"}}
    def log_message(self, *_):
        pass
files = functools.partial(Files, directory={COLLECTOR!r})
http.server.ThreadingHTTPServer(("0.0.0.0", {PORT}), files).serve_forever()
"""
# More than one boost, so that the share of a cap is between 0 and 1.
SETTINGS = {"caps": {"max_boosts_per_day": 50}, "policy": {"attach_timeout_s": DEADLINE_S}}
ANSWERS_S = 180.0
MUCH = 50 * 10**6
EXPECT_S = 40


@dataclass(frozen=True)
class Observed:
    """The machine, and the Prometheus that scrapes it."""

    target: Target
    server: Prometheus

    def wait_for(self, query: str) -> None:
        """Wait until a scrape has shown it: what is short must not end before."""
        asked = time.time()
        found = until(lambda: bool(self.server.get("query", query=query, time=time.time())["result"]), ANSWERS_S)
        assert found, f"{query} has had no answer since {asked}"


@pytest.fixture(scope="module")
def observed(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    guest = target.lab.guest
    guest.write_config(target.lab.cloud, SETTINGS)
    succeed(target, "systemctl", "restart", "elastiod")
    target.wait_for(lambda s: s["owned"] is not None, "the agent to know its volumes")
    guest.vm.agent.write_file("/opt/testbed/serve.py", SERVER.encode())
    shell(target, f"mkdir -p {COLLECTOR} && systemd-run --unit=exporter python3 /opt/testbed/serve.py")
    write = "while :; do systemctl start elastio-metrics.service; sleep 1; done"
    succeed(target, "systemd-run", "--unit=metrics", "sh", "-c", write)
    port, begun = free_port(), time.time()
    guest.vm.forward(port, PORT)
    with prometheus(tmp_path_factory.mktemp("prometheus") / "server", port, begun) as server:
        yield Observed(target, server)


def records(target: Target, *match: str) -> list[dict[str, str]]:
    """The records of the journal of systemd about the agent that match."""
    text = shell(target, f"journalctl --no-pager -u elastiod -o json {' '.join(match)}")
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_the_guest_is_scraped(observed: Observed) -> None:
    observed.wait_for("elastio_up == 1")


def test_one_boost_is_one_record_with_its_bill(observed: Observed) -> None:
    target, lab = observed.target, observed.target.lab
    assert records(target, "ELASTIO_EVENT=boost-over") == []
    # Slow enough for several scrapes of the flush.
    lab.guest.vm.set_limit(lab.guest.serial, lab.guest.cap_bytes_s // SLOWER)
    succeed(target, "elastio", "boost")
    lab.burst()
    observed.wait_for(f"elastio_dirty_bytes > {MUCH}")
    observed.wait_for("elastio_flush_left_seconds > 0")
    lab.guest.vm.set_limit(lab.guest.serial, lab.guest.cap_bytes_s)
    lab.wait_for_rest()

    told = records(target, "ELASTIO_EVENT=boost-over")
    volume, *later = lab.cloud.volumes()  # the burst may outlast the boost that was asked for
    assert [record["VOLUME"] for record in told] == [volume.id, *(v.id for v in later)]
    record = told[0]
    assert record["ASKED_BY"] == "0"
    scaled_gib = volume.size_gib * lab.cloud.scale.gib_bytes / 2**30
    assert float(record["GIB"]) == pytest.approx(scaled_gib, rel=0.01)
    assert min(float(record[name]) for name in ("GIB", "MB_S", "PRICE_PER_HOUR")) > 0
    assert {"MESSAGE_ID", "CURRENCY", "BILLED_S", "COST"} <= set(record)
    assert record["PRIORITY"] == "5"


def test_a_boost_ahead_of_an_announced_burst_is_seen(observed: Observed) -> None:
    target, lab = observed.target, observed.target.lab
    succeed(target, "elastio", "expect", "--in", f"{EXPECT_S}s", "--size", "100M")
    target.wait_for(lambda s: s["phase"] == "boosting", "the boost ahead of the burst")
    load(lab)
    observed.wait_for("elastio_dirty_bytes > 0")
    end_load(lab)
    observed.wait_for("elastio_ahead_hit_ratio")


def test_a_snapshot_shows_what_holds_boosts_back(observed: Observed) -> None:
    succeed(observed.target, "elastio", "quiesce", "--hold", "900", timeout_s=300)
    observed.wait_for("elastio_inhibited == 1")
    succeed(observed.target, "elastio", "unquiesce")


def test_a_forced_fault_is_an_error_of_the_journal_and_of_prometheus(observed: Observed) -> None:
    target, lab = observed.target, observed.target.lab
    assert records(target, "-p err") == []
    target.start_writer()
    with target.dirty_and_idle():
        volume = target.tear_off()
        target.wait_for(lambda s: s["missing"] is not None, "the agent to report a missing cache")
        observed.wait_for("elastio_fault == 1")
    code, output = target.run("elastio", "recover", "--umount", "--timeout", "240", timeout_s=300)
    assert code == 0, output
    lab.mount()
    lab.wait_for_rest()
    assert target.records_lost() == 0
    assert lab.leaked() == ()

    faults = records(target, "-p err")
    assert {record.get("ELASTIO_EVENT") for record in faults} == {"fault"}
    assert {record.get("VOLUME") for record in faults} == {volume}
    assert records(target, "ELASTIO_EVENT=recovered") != []


def test_every_query_of_the_dashboard_has_had_an_answer(observed: Observed) -> None:
    def unanswered() -> list[str]:
        return [query for query in dashboard_queries() if observed.server.samples(query, time.time()) == 0]

    until(lambda: not unanswered(), ANSWERS_S, 5.0)
    assert unanswered() == []


def test_prometheus_evaluates_every_rule(observed: Observed) -> None:
    groups = observed.server.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    assert {rule["health"] for rule in rules} == {"ok"}
