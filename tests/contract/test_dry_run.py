"""`elastio boost --dry-run` against clouds that note every call: none writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from elastio_cli.app import App
from elastio_cli.main import main

from .conftest import BACKING

CONFIG = """
[device]
backing_uuid = "{uuid}"
bandwidth_mb_s = 131
[cache]
bandwidth_mb_s = 400
initial_size_gib = 5.5
[caps]
max_cost_per_day = 1
[agent]
state_dir = "{state}"
[provider]
name = "aws"
[provider.aws]
endpoint_url = "{endpoint}"
metadata_url = "{metadata}"
cache_dir = ""
"""


def test_ec2_is_only_asked_to_describe(runs_programs: None, ec2_cloud: Any, tmp_path: Path) -> None:
    path = tmp_path / "elastio.toml"
    known = {"endpoint": ec2_cloud.endpoint.url, "metadata": ec2_cloud.endpoint.imds_url(ec2_cloud.instance_id)}
    path.write_text(CONFIG.format(uuid=BACKING, state=tmp_path, **known))
    app = App(config_path=path, socket=tmp_path / "no.sock", root=tmp_path)
    result = CliRunner().invoke(main, ["boost", "--dry-run", "--json"], obj=app, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    # 6 GiB and 507 MiB/s: 531 MB/s are rounded up
    assert shown["size_bytes"] == 6 * 2**30
    assert shown["bandwidth_mb_s"] == 507 * 1.048576
    assert round(shown["price_per_hour"] * 720, 6) == round(6 * 0.08 + (507 - 125) * 0.04, 6)
    actions = {str(entry.detail["action"]) for entry in ec2_cloud.endpoint.log.calls()}
    assert actions == {"DescribeInstanceTypes", "Imds"}  # the latter is the metadata service: who am I
    assert ec2_cloud.endpoint.volumes() == []
