"""The server's identity: from the settings, cloud-init's data, the config drive, or the metadata service."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from elastio.errors import RefusedError, TransientError
from elastio_openstack import configdrive
from elastio_openstack.identity import Places, ServerIdentity, detect, who
from elastio_openstack.settings import parse
from tests.fixtures.errors import refused

ID = "5d0b4a0c-7f1c-4f3e-9a55-6f3a4b1c2d3e"
DOCUMENT = json.dumps({"uuid": ID, "availability_zone": "nova"}).encode()
OTHER_ID = "22222222-2222-4222-8222-222222222222"
FACTS = {"cloud_name": "openstack", "instance_id": ID, "availability_zone": "az1"}
NOWHERE = "http://127.0.0.1:9"  # the discard port, where nothing listens


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "dmi").mkdir()
    return Places(tmp_path / "instance-data.json", tmp_path / "drive", tmp_path / "dmi")


@pytest.fixture
def service() -> Iterator[list[tuple[int, bytes]]]:
    """A metadata service. It returns the last entry of the list; the first entry is its address."""
    responses: list[tuple[int, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = responses[-1]
            self.send_response(status if self.path == "/openstack/latest/meta_data.json" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    responses.append((0, f"http://127.0.0.1:{server.server_port}".encode()))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield responses
    server.shutdown()
    server.server_close()


def _record(name: bytes, sector: int, size: int, *, directory: bool) -> bytes:
    length = 33 + len(name) + (len(name) + 1) % 2
    head = struct.pack("<BBI4xI4x7xBBBHHB", length, 0, sector, size, 2 * directory, 0, 0, 1, 1, len(name))
    return (head + name).ljust(length, b"\0")


def iso(document: bytes) -> bytes:
    """A minimal ISO 9660 file system with openstack/latest/meta_data.json in it."""
    size = configdrive.SECTOR
    dots = _record(b"\0", 20, size, directory=True) + _record(b"\1", 20, size, directory=True)
    root = _record(b"\0", 20, size, directory=True)
    sectors = {
        16: (b"\x01CD001\x01".ljust(156, b"\0") + root).ljust(size, b"\0"),
        20: dots + _record(b"OPENSTACK", 21, size, directory=True),
        21: dots + _record(b"latest", 22, size, directory=True),
        22: dots + _record(b"META_DATA.JSON;1", 23, len(document), directory=False),
        23: document,
    }
    return b"".join(sectors.get(n, b"").ljust(size, b"\0") for n in range(24))


def firmware(places: Places, vendor: str, uuid: str) -> None:
    (places.dmi / "sys_vendor").write_text(f"{vendor}\n")
    (places.dmi / "product_uuid").write_text(f"{uuid}\n")


uncontradicted = pytest.mark.parametrize(
    "shown",
    [
        None,
        ("OpenStack Foundation", ID),
        ("OpenStack Foundation", "0c4a0b5d-1c7f-3e4f-9a55-6f3a4b1c2d3e"),  # the first bytes swapped
        ("OpenStack Foundation", "not readable"),
        ("Bochs", OTHER_ID),
    ],
)


@uncontradicted
def test_settings_come_first_where_the_firmware_does_not_contradict(
    places: Places, shown: tuple[str, str] | None
) -> None:
    if shown is not None:
        firmware(places, *shown)
    found = who(parse({"instance_id": ID.upper(), "metadata_url": NOWHERE}), places)
    assert found == ServerIdentity(ID.upper(), "")


def test_setting_of_another_server_is_refused(places: Places) -> None:
    firmware(places, "OpenStack Foundation", OTHER_ID)
    with refused(RefusedError, "provider.openstack.instance_id"):
        who(parse({"instance_id": ID}), places)


copied = pytest.mark.parametrize(
    ("lay", "found"),
    [
        (lambda places: places.cloud_init.write_text(json.dumps({"v1": FACTS})), ServerIdentity(ID, "az1")),
        (lambda places: places.config_drive.write_bytes(iso(DOCUMENT)), ServerIdentity(ID, "nova")),
    ],
    ids=["cloud-init's data", "config drive"],
)


@copied
@uncontradicted
def test_what_is_copied_with_a_disk_is_used_where_the_firmware_does_not_contradict(
    places: Places, lay: Callable[[Places], object], found: ServerIdentity, shown: tuple[str, str] | None
) -> None:
    lay(places)
    if shown is not None:
        firmware(places, *shown)
    assert who(parse({"metadata_url": NOWHERE}), places) == found


@copied
def test_what_was_copied_from_another_server_is_refused(
    places: Places, lay: Callable[[Places], object], found: ServerIdentity
) -> None:
    lay(places)
    firmware(places, "OpenStack Foundation", OTHER_ID)
    with refused(RefusedError, "metadata.other-server"):
        who(parse({"metadata_url": NOWHERE}), places)
    assert who(parse({"instance_id": OTHER_ID}), places) == ServerIdentity(OTHER_ID, "")


@pytest.mark.parametrize(
    ("lay", "found"),
    [
        (lambda places: firmware(places, "OpenStack Foundation", ID.upper()), ServerIdentity(ID, "")),
        (lambda places: places.cloud_init.write_text(json.dumps({"v1": FACTS})), ServerIdentity(ID, "az1")),
        (lambda places: places.config_drive.write_bytes(iso(DOCUMENT)), ServerIdentity(ID, "nova")),
    ],
    ids=["firmware", "cloud-init's data", "config drive"],
)
def test_what_the_machine_knows_comes_before_the_network(
    places: Places, lay: Callable[[Places], object], found: ServerIdentity
) -> None:
    lay(places)
    assert who(parse({"metadata_url": NOWHERE}), places) == found


@pytest.mark.parametrize("damage", [b"", b"\0" * 65536, iso(DOCUMENT)[:45000], iso(b"no JSON"), iso(b"{}")])
def test_damaged_drive_falls_back_to_the_metadata_service(
    places: Places, service: list[tuple[int, bytes]], damage: bytes
) -> None:
    places.config_drive.write_bytes(damage)
    url = service[0][1].decode()
    service.append((200, DOCUMENT))
    assert who(parse({"metadata_url": url}), places) == ServerIdentity(ID, "nova")


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [(404, b"", "metadata.malformed"), (200, b"<html>", "metadata.malformed"), (200, b"{}", "metadata.incomplete")],
)
def test_other_metadata_service_is_refused(
    places: Places, service: list[tuple[int, bytes]], status: int, body: bytes, code: str
) -> None:
    url = service[0][1].decode()
    service.append((status, body))
    with refused(RefusedError, code):
        who(parse({"metadata_url": url}), places)


def test_unresponsive_service_is_transient(places: Places, service: list[tuple[int, bytes]]) -> None:
    with refused(TransientError, "metadata.unreachable"):
        who(parse({"metadata_url": NOWHERE}), places)
    url = service[0][1].decode()
    service.append((503, b""))
    with pytest.raises(TransientError):
        who(parse({"metadata_url": url}), places)


def test_machine_is_recognised_by_cloud_init_or_its_vendor(places: Places) -> None:
    assert not detect(places)
    (places.dmi / "sys_vendor").write_text("OpenStack Foundation\n")
    assert detect(places)
    (places.dmi / "sys_vendor").unlink()
    places.cloud_init.write_text(json.dumps({"v1": FACTS}))
    assert detect(places)


def test_missing_file_is_an_error(places: Places) -> None:
    places.config_drive.write_bytes(iso(DOCUMENT))
    with pytest.raises(FileNotFoundError):
        configdrive.read_file(places.config_drive, "openstack/latest/user_data")
