"""A Prometheus on this host, which scrapes one port of the loopback interface."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from elastio_testbed.polling import until
from tests.unit.elastio.metrics.promtool import DASHBOARD, RULES

READY_S, CALL_S, END_S = 60.0, 20.0, 20.0
CONFIG = """
global: {{scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 3s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: node
    metrics_path: /elastio.prom
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@dataclass(frozen=True)
class Prometheus:
    """A running server. `begun`: when it was started, by the host's clock."""

    url: str
    begun: float

    def get(self, path: str, **parameters: object) -> Any:
        """The data of an answer of its API. Raises OSError."""
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=CALL_S) as answer:
            return json.load(answer)["data"]

    def samples(self, query: str, until_wall: float) -> int:
        """How many samples the query has had, second by second, since the start."""
        found = self.get("query_range", query=query, start=self.begun, end=until_wall, step=1)
        return sum(len(series["values"]) for series in found["result"])

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready", timeout=CALL_S) as answer:
                return bool(answer.status == 200)
        except URLError:
            return False


@contextmanager
def prometheus(folder: Path, target_port: int, wall: float) -> Iterator[Prometheus]:
    """Scrapes `/elastio.prom` of that port every three seconds, and has the rules of monitoring/alerts.yml."""
    beside = Path(sys.executable).with_name("prometheus")
    program = str(beside) if beside.exists() else shutil.which("prometheus")
    assert program is not None, "prometheus is missing: run `make operator`"
    folder.mkdir(parents=True)
    (folder / "config.yml").write_text(CONFIG.format(rules=RULES, port=target_port))
    port = free_port()
    options = {
        "config.file": folder / "config.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": f"127.0.0.1:{port}",
        "log.level": "warn",
    }
    with (folder / "log").open("wb") as log:
        argv = [program, *(f"--{name}={value}" for name, value in options.items())]
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        server = Prometheus(f"http://127.0.0.1:{port}", wall)
        assert until(server.is_ready, READY_S), (folder / "log").read_text()
        yield server
    finally:
        process.terminate()
        process.wait(END_S)


def dashboard_queries() -> list[str]:
    """Every query of the dashboard, once, for all instances and devices."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    return [q.replace("$instance", ".*").replace("$device", ".*") for q in dict.fromkeys(queries)]
