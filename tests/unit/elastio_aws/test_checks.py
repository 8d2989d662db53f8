from __future__ import annotations

from typing import Any

import pytest

from elastio.core.model import VolumeSpec
from elastio.units import GIB
from elastio_aws import checks
from elastio_aws.devices import NAMES

SPEC = VolumeSpec(10 * GIB, 200.0)


def _by_name(results: list[checks.Check]) -> dict[str, tuple[bool, str]]:
    return {name: (ok, text) for name, ok, text in results}


def test_all_is_well_and_nothing_was_bought(open_aws: Any) -> None:
    provider = open_aws()
    results = checks.run(provider, SPEC)
    assert [ok for _, ok, _ in results] == [True] * 9
    assert provider.list_owned() == ()
    assert "before the first volume" in _by_name(results)["AWS attach"][1]
    assert "625 MB/s" in _by_name(results)["AWS bandwidth"][1]
    assert "of at most" in _by_name(results)["AWS attachments"][1]


def test_attach_is_tried_on_an_own_volume(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    provider.create("token-check", SPEC, {})
    calls = answer(provider, "AttachVolume", 412, "DryRunOperation")
    assert _by_name(checks.run(provider, SPEC))["AWS attach"] == (
        True,
        "AttachVolume is allowed for this agent's volumes.",
    )
    assert "DryRun" in calls[0]


@pytest.mark.parametrize(
    ("operation", "name"),
    [("CreateVolume", "AWS create"), ("AttachVolume", "AWS attach"), ("CreateTags", "AWS tag")],
)
def test_missing_permission_is_found(open_aws: Any, answer: Any, operation: str, name: str) -> None:
    provider = open_aws()
    provider.create(f"token-{operation}", SPEC, {})
    answer(provider, operation, 403, "UnauthorizedOperation")
    results = _by_name(checks.run(provider, SPEC))
    assert results[name][0] is False
    assert "iam-policy.json" in results[name][1]
    assert [key for key, (ok, _) in results.items() if not ok] == [name]


def test_useless_credentials_end_the_checks(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    answer(provider, "DescribeVolumes", 401, "AuthFailure")
    results = checks.run(provider, SPEC)
    assert [(name, ok) for name, ok, _ in results] == [("AWS instance", True), ("AWS credentials", False)]


def test_no_metadata_service_is_a_verdict(open_aws: Any) -> None:
    provider = open_aws(account_id="", metadata_url="http://127.0.0.1:9")
    results = _by_name(checks.run(provider, SPEC))
    assert results["AWS instance"][0] is False
    assert "No metadata service answers" in results["AWS instance"][1]


def test_too_fast_a_volume_for_the_instance_is_found(open_aws: Any) -> None:
    results = _by_name(checks.run(open_aws(), VolumeSpec(10 * GIB, 1000.0)))
    assert results["AWS bandwidth"][0] is False
    assert "limit is 625" in results["AWS bandwidth"][1]


def test_unknown_limit_says_how_to_know_it(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    answer(provider, "DescribeInstanceTypes", 403, "UnauthorizedOperation")
    results = _by_name(checks.run(provider, SPEC))
    assert "allow ec2:DescribeInstanceTypes" in results["AWS bandwidth"][1]
    assert "is not known" in results["AWS attachments"][1]


def test_full_instance_is_found(open_aws: Any, sdk: Any, instance_id: str, monkeypatch: Any) -> None:
    provider = open_aws()
    limited = {"InstanceTypes": [{"EbsInfo": {"MaximumEbsAttachments": 1}}]}
    answered = (type("Answer", (), {"status_code": 200}), limited)
    provider.ec2().client().meta.events.register("before-call.ec2.DescribeInstanceTypes", lambda **_: answered)
    results = _by_name(checks.run(provider, SPEC))
    assert results["AWS attachments"] == (False, "1 of at most 1 volumes are attached; detach one of them.")


def test_device_name_of_the_dry_run_is_one_that_ec2_lists(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    provider.create("token-listed", SPEC, {})
    calls = answer(provider, "AttachVolume", 412, "DryRunOperation")
    checks.run(provider, SPEC)
    assert any(name.rpartition("/")[2] in calls[0] for name in NAMES)


@pytest.mark.parametrize(("zone", "is_odd"), [("us-east-1-bos-1a", True), ("us-east-1a", False)])
def test_local_zone_is_pointed_out(open_aws: Any, zone: str, is_odd: bool) -> None:
    ok, text = _by_name(checks.run(open_aws(availability_zone=zone), SPEC))["AWS place"]
    assert ok
    assert ("no ordinary availability zone" in text) is is_odd


def test_proxy_that_would_be_asked_for_credentials_is_pointed_out(open_aws: Any, monkeypatch: Any) -> None:
    provider = open_aws()
    provider.ec2().client()  # made without the proxy: it would be asked for what moto answers here
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert "NO_PROXY" in _by_name(checks.run(provider, SPEC))["AWS place"][1]
    monkeypatch.setenv("NO_PROXY", "localhost,169.254.169.254")
    assert "NO_PROXY" not in _by_name(checks.run(provider, SPEC))["AWS place"][1]
