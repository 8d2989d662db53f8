"""The laboratory's OpenStack without its services: configuration, recordings, the proxy."""

from __future__ import annotations

import json
import re
import stat
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from elastio_testbed.errors import LabError
from elastio_testbed.faults.fault_target import RECORDS_PORT, TRIGGER_PORT
from elastio_testbed.openstack import configure, services
from elastio_testbed.openstack.cassette import NEVER, Cassette, CassetteError, Exchange
from elastio_testbed.openstack.daemons import Daemons
from elastio_testbed.openstack.proxy import ApiProxy

FERNET_TOKEN = re.compile(r"gAAAAA[\w-]{40,}")
RECORDED = Path(__file__).parents[2] / "contract/recorded"


def _exchange(**changes: object) -> Exchange:
    known = {"service": "cinder", "method": "GET", "path": "/v3", "request": None, "status": 200, "body": {"a": 1}}
    return Exchange(**{**known, **changes})  # type: ignore[arg-type]


def test_every_configuration_is_complete_and_a_repetition_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    configure.configure(tmp_path)
    first = {path: path.read_text() for path in sorted(tmp_path.rglob("*.conf"))}
    configure.configure(tmp_path)
    assert {path: path.read_text() for path in sorted(tmp_path.rglob("*.conf"))} == first
    texts = "\n".join(first.values())
    assert not re.search(r"\$\{?\w", texts)
    assert "username = nova\n" in (tmp_path / "etc/nova/nova.conf").read_text()


def test_password_is_created_once_and_readable_by_root_only(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    secret = configure.password(tmp_path)
    assert len(secret) == 32
    assert configure.password(tmp_path) == secret
    assert stat.S_IMODE((tmp_path / "etc/lab.secret").stat().st_mode) == 0o600


def test_every_listener_of_the_services_is_on_loopback(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    configure.configure(tmp_path)
    texts = "".join(path.read_text() for path in tmp_path.rglob("*.conf"))
    arguments = " ".join(word for daemon in services.ALL for word in daemon.argv)
    assert "0.0.0.0" not in texts + arguments
    binds = re.findall(r"(?:bind_host|_listen) = (\S+)", texts)
    assert len(binds) == 4
    assert set(binds) == {"127.0.0.1"}


def test_daemon_that_does_not_run_has_no_processes(tmp_path: Path) -> None:
    with pytest.raises(LabError):
        Daemons(tmp_path).family("nova-compute")


def test_emulator_has_the_ports_of_the_fault_runs_and_writes_to_their_files() -> None:
    wrapper = (configure._OVERLAY / "usr/bin/qemu-system-x86_64").read_text()
    for port in (RECORDS_PORT, TRIGGER_PORT):
        assert f",name={port}" in wrapper
        assert f"path=/run/lab/$name.{port}," in wrapper


def test_recording_contains_no_credentials(tmp_path: Path) -> None:
    login = {"auth": {"identity": {"application_credential": {"id": "x", "secret": "s3cret"}}}}
    cassette = Cassette()
    cassette.record(_exchange(request=login, headers={"x-subject-token": "gAAAAA" + "x" * 80}))
    cassette.save(tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text()
    assert "s3cret" not in text
    assert not FERNET_TOKEN.search(text)
    again = {"auth": {"identity": {"application_credential": {"id": "x", "secret": "other"}}}}
    assert Cassette.load(tmp_path / "c.json").play("cinder", "GET", "/v3", again).status == 200


def test_recorded_login_does_not_expire(tmp_path: Path) -> None:
    cassette = Cassette()
    cassette.record(_exchange(body={"token": {"expires_at": "2026-11-22T10:08:04.000000Z", "links": [None]}}))
    cassette.save(tmp_path / "c.json")
    played = Cassette.load(tmp_path / "c.json").play("cinder", "GET", "/v3", _exchange().request)
    assert played.body == {"token": {"expires_at": NEVER, "links": [None]}}


def test_no_recording_contains_a_login_that_expires() -> None:
    ends = re.compile(r'"expires_at":"(\d{4})')
    texts = [path.read_text(encoding="utf-8") for path in RECORDED.glob("*.json")]
    years = [int(year) for text in texts for year in ends.findall(text)]
    assert years
    assert min(years) >= int(NEVER[:4])


def test_requests_and_notes_are_played_in_their_order_only() -> None:
    cassette = Cassette()
    cassette.note(["vol-1"])
    cassette.record(_exchange())
    cassette.record(_exchange())
    assert cassette.noted() == ["vol-1"]
    with pytest.raises(CassetteError):
        cassette.noted()
    with pytest.raises(CassetteError):
        cassette.play("cinder", "GET", "/v4", None)
    assert cassette.failure
    assert cassette.finished()
    with pytest.raises(CassetteError):
        cassette.play("cinder", "GET", "/v3", None)


def test_proxy_plays_responses_with_its_own_addresses() -> None:
    cassette = Cassette()
    body = {"endpoint": "http://nova.lab/v2.1", "again": "http://keystone.lab/v3"}
    cassette.record(_exchange(service="keystone", path="/v3", body=body))
    with ApiProxy(cassette, live=False) as proxy, urllib.request.urlopen(proxy.auth_url(), timeout=10) as answer:
        found = json.load(answer)
        assert found["again"] == proxy.auth_url()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v2\.1", found["endpoint"])
    assert cassette.finished()


def test_proxy_closes_the_connection_where_no_response_was_recorded() -> None:
    cassette = Cassette()
    cassette.record(_exchange(service="keystone", path="/v3", status=0))
    with ApiProxy(cassette, live=False) as proxy, pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(proxy.auth_url(), timeout=10)


def test_no_recording_contains_a_secret() -> None:
    files = sorted(RECORDED.glob("*.json"))
    assert files
    for path in files:
        text = path.read_text()
        assert not FERNET_TOKEN.search(text), path
        assert set(re.findall(r'"(?:secret|password|x-subject-token)":"([^"]*)"', text)) <= {"hidden"}, path
