"""Whatever the kernel, a disk, the cloud or its metadata service return: a value, or an error of ours."""

from __future__ import annotations

import http.server
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from elastio.core.model import HostView, VolumeId
from elastio.errors import ElastioError, HostError, TransientError
from elastio.host import superblock, tuning
from elastio.host.bcache import BcacheHost
from elastio.host.sysfs import parse_size
from elastio_aws import metadata
from elastio_aws.provider import AwsProvider
from elastio_aws.settings import Scale, parse
from elastio_aws.volumes import volume_of
from tests.fixtures.sysfs_tree import BACKING_UUID, SERIAL, SET_UUID, build
from tests.property.hostile import DEEP, JSON, ODD_TEXTS, altered, to_line

T = TypeVar("T")
INSTANCE = "i-0123456789abcdef0"
TEXTS = st.one_of(ODD_TEXTS, st.text(max_size=40), st.sampled_from(["1.0k", "-3.2G", "clean", "dirty", "[none] a"]))


def unless(error: type[Exception], call: Callable[[], T]) -> T | None:
    """The value of the call, or None where it raised this error. Any other exception fails the test."""
    try:
        return call()
    except error:
        return None


# --- the kernel and disks --------------------------------------------------------------------------------------------


@given(TEXTS | st.from_regex(r"-?[0-9]{1,400}(\.[0-9])?[kMGTPEZ]?", fullmatch=True))
@example("inf")
@example("infG")
@example("1e999k")
def test_a_size_is_a_number_or_an_error(text: str) -> None:
    found = unless(HostError, lambda: parse_size(text))
    assert found is None or isinstance(found, int)


@given(st.text() | st.from_regex(r"\{ writeback: +[0-9]{1,30}, bypass: +[01] \} .* nr_sector: +[0-9]{1,30}"))
def test_a_histogram_of_any_shape_is_a_sum(text: str) -> None:
    assert tuning.parse_written_through(text) >= 0


def with_magic(block: bytes) -> bytes:
    return block[:8] + (8).to_bytes(8, "little") + bytes([block[16] % 8]) + bytes(7) + superblock.MAGIC + block[40:]


@given(st.binary(max_size=superblock.OFFSET) | st.binary(min_size=300, max_size=400).map(with_magic))
def test_any_bytes_are_a_superblock_or_none(block: bytes) -> None:
    found = superblock.parse(block)
    assert found is None or (found.role in superblock.Role and len(found.set_uuid) == 36)


DISK, SET = "sys/block/vdc", f"sys/fs/bcache/{SET_UUID}"
BACKING = "sys/block/vdb/bcache"
SHOWN = (
    *(f"{BACKING}/{name}" for name in ("state", "cache_mode", "running", "dirty_data", "writeback_running")),
    *(f"{BACKING}/{name}" for name in ("writeback_percent", "writeback_rate_minimum", "sequential_cutoff")),
    *(f"{SET}/{name}" for name in ("cache_available_percent", "internal/cutoff_writeback")),
    *(f"{DISK}/{name}" for name in ("size", "serial", "dev")),
    *("sys/block/vdb/size", "sys/block/vdb/queue/scheduler", "sys/block/vdb/queue/nr_requests"),
    *("proc/self/mountinfo", "proc/swaps", f"{BACKING}/backing_dev_uuid"),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(SHOWN), TEXTS), min_size=1, max_size=3))
@example([(f"{DISK}/size", "many")])
@example([(f"{BACKING}/dirty_data", "inf")])
@example([("sys/block/vdb/size", "1" * 5000)])
def test_a_scan_of_malformed_kernel_files_is_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str]]
) -> None:
    tree = build(tmp_path_factory.mktemp("tree"))
    tree.cache_disk()
    tree.attached()
    for name, text in changes:
        path = tree.kernel.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="replace"))
    host = BcacheHost(BACKING_UUID, tree.kernel, tree.programs)
    view = unless(HostError, lambda: host.scan((SERIAL,)))
    assert view is None or isinstance(view, HostView)


# --- the cloud -------------------------------------------------------------------------------------------------------

VOLUME: dict[str, Any] = {
    "VolumeId": "vol-0123456789abcdef0",
    "State": "in-use",
    "Size": 10,
    "Throughput": 125,
    "Attachments": [{"InstanceId": INSTANCE, "State": "attached"}],
    "Tags": [{"Key": "elastio:cycle", "Value": "one"}],
}


@given(altered(VOLUME), ODD_TEXTS)
def test_a_volume_of_any_shape_is_one_or_refused(shown: dict[str, Any], text: str) -> None:
    shown = {key: value for key, value in shown.items() if key not in ("Attachments", "Tags", "Size", "Throughput")}
    shown["Tags"] = [{"Key": text}, {"Value": text}, {"Key": text, "Value": text}]
    volume = unless(TransientError, lambda: volume_of(shown, INSTANCE, Scale()))
    assert volume is None or volume.id.startswith("vol-")


ANSWER = """<DescribeVolumesResponse><requestId>1</requestId><volumeSet><item><volumeId>vol-0123456789abcdef0</volumeId>
<size>10</size><status>available</status><createTime>2026-01-01T00:00:00.000Z</createTime><iops>3000</iops>
<throughput>125</throughput><encrypted>false</encrypted><attachmentSet><item><status>attached</status>
<instanceId>i-1</instanceId><deleteOnTermination>false</deleteOnTermination></item></attachmentSet><tagSet><item>
<key>elastio:owner</key><value>nobody</value></item></tagSet></item></volumeSet></DescribeVolumesResponse>"""
ELEMENTS = re.findall(r"<(\w+)>[^<]+</", ANSWER)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """The good answer with the text of one element replaced, one element left out, or the end cut off; or rubbish."""
    how = draw(st.sampled_from(["text", "drop", "cut", "rubbish"]))
    if how == "rubbish":
        return draw(st.binary(max_size=300) | st.just(b"<a>" * 3000))
    if how == "cut":
        return ANSWER[: draw(st.integers(0, len(ANSWER)))].encode()
    name = draw(st.sampled_from(ELEMENTS))
    text = "" if how == "drop" else f"<{name}>{escape(draw(TEXTS))}</{name}>"
    return re.sub(f"<{name}>[^<]*</{name}>", lambda _: text, ANSWER, count=1).encode(errors="replace")


@dataclass
class CannedServer:
    """A server on loopback that gives one answer to everything."""

    url: str
    status: int = 200
    body: bytes = b""


@pytest.fixture(scope="module")
def canned() -> Iterator[CannedServer]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(canned_answer.status)
            self.send_header("Content-Length", str(len(canned_answer.body)))
            self.end_headers()
            self.wfile.write(canned_answer.body)

        do_GET = do_PUT = do_POST = answer

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    canned_answer = CannedServer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield canned_answer
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def provider(canned: CannedServer) -> Iterator[AwsProvider]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [key for key in os.environ if key.startswith("AWS_") or key.lower().endswith("_proxy")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        where = {"region": "us-east-1", "availability_zone": "us-east-1a", "account_id": "1"}
        wanted = {"instance_id": INSTANCE, "endpoint_url": canned.url, "max_attempts": 1, "cache_dir": "", **where}
        made = AwsProvider(parse(wanted), BACKING_UUID)
        yield made
        made.close()


@given(answers(), st.sampled_from([200, 200, 200, 400, 403, 500, 503]))
@example(ANSWER.replace("<size>10<", "<size>ten<").encode(), 200)
@example(ANSWER.replace("2026-01-01T00:00:00.000Z", "yesterday").encode(), 200)
@example(ANSWER.replace("vol-0123456789abcdef0", "vol-0000").encode(), 200)
def test_whatever_the_cloud_answers_is_a_volume_or_an_error_of_ours(
    canned: CannedServer, provider: AwsProvider, body: bytes, status: int
) -> None:
    canned.body, canned.status = body, status
    wanted = VolumeId("vol-0123456789abcdef0")
    seen = unless(ElastioError, lambda: provider.describe(wanted))
    assert seen is None or seen.id == wanted
    # None of these answers shows a volume with this instance's tag.
    assert not unless(ElastioError, provider.list_owned)


@given(st.binary(max_size=200) | JSON.map(to_line) | st.just(DEEP), st.sampled_from([200, 200, 404, 500]))
@example(b"to\nken", 200)
@example(b"\xe9", 200)
def test_whatever_the_metadata_service_says_is_a_document_or_an_error_of_ours(
    canned: CannedServer, body: bytes, status: int
) -> None:
    canned.body, canned.status = body, status
    document = unless(ElastioError, lambda: metadata.identity_document(canned.url, 5.0))
    assert document is None or isinstance(document, dict)
