"""A purchase whose answer is lost buys one volume, however late the cloud carries it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elastio.core.model import Volume, VolumeSpec
from elastio.errors import ProviderError, QuotaError, TransientError
from elastio.units import GIB
from elastio_openstack.identity import ServerIdentity
from elastio_openstack.provider import OpenstackProvider
from elastio_openstack.purchases import SHOWN_S, LastPurchase
from elastio_openstack.settings import parse
from tests.fixtures.errors import refused

SPEC = VolumeSpec(10 * GIB, 200.0)
RETRIES_S = (1, 2, 4, 8, 16, 32, 60, 60)


class LateCloud:
    """Cinder, which carries out the first purchase so many seconds after the answer was lost; infinite: never."""

    def __init__(self, late_s: float, *, answer: bool = False) -> None:
        self.now, self.late_s, self.answer = 0.0, late_s, answer
        self.sent = 0
        self.volumes: list[dict[str, Any]] = []
        self.late: tuple[float, dict[str, Any]] | None = None

    def wait(self, seconds: float) -> None:
        self.now += seconds
        if self.late is not None and self.late[0] <= self.now:
            self.volumes.append(self.late[1])
            self.late = None

    def call(self, service: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        self.wait(0.2)
        if method != "POST":
            return {"volumes": list(self.volumes)}
        self.sent += 1
        row = body["volume"] | {"id": f"v-{self.sent}", "status": "creating", "attachments": []}
        if self.sent == 1:
            self.late = self.now + self.late_s, row
            if self.answer:
                return {"volume": []}
            raise TransientError("no answer", code="ConnectTimeout")
        self.volumes.append(row)
        return {"volume": row}


def provider(cloud: Any) -> OpenstackProvider:
    opened = OpenstackProvider(parse({}), "uuid", seconds=lambda: cloud.now)
    opened._who, opened._cloud = ServerIdentity("server-1", "nova"), cloud
    opened.create_request = _request  # type: ignore[method-assign]
    return opened


def _request(token: str, spec: VolumeSpec, tags: object) -> dict[str, Any]:
    metadata = {"elastio:owner": "server-1", "elastio:cycle": token, "elastio:backing": "uuid"}
    return {"volume": {"name": f"elastio-{token}", "size": 10, "metadata": metadata}}


def assert_buys_one(cloud: LateCloud, create: Callable[[], Volume]) -> None:
    """The purchase is repeated until it succeeds; only one that was never carried out is sent again."""
    bought = None
    for wait_s in RETRIES_S:
        try:
            bought = create()
            break
        except TransientError:
            cloud.wait(wait_s)
    cloud.wait(1000.0)
    assert bought is not None
    assert [row["id"] for row in cloud.volumes] == [bought.id]
    assert cloud.sent == (2 if cloud.late_s == float("inf") else 1)


@pytest.mark.parametrize("is_malformed", [False, True])
@pytest.mark.parametrize("late_s", [0.0, 0.5, 3.0, 20.0, SHOWN_S - 1, float("inf")])
def test_a_purchase_without_an_answer_buys_one_volume(late_s: float, is_malformed: bool) -> None:
    cloud = LateCloud(late_s, answer=is_malformed)
    opened = provider(cloud)
    assert_buys_one(cloud, lambda: opened.create("token", SPEC, {}))


@pytest.mark.parametrize("late_s", [3.0, 20.0, SHOWN_S - 1, float("inf")])
def test_a_process_that_follows_a_killed_one_buys_no_second_volume(late_s: float) -> None:
    cloud = LateCloud(late_s)
    with pytest.raises(TransientError):
        provider(cloud).create("token", SPEC, {})
    opened, sent_at = provider(cloud), cloud.now

    def repeated() -> Volume:
        opened.sent_before("token", cloud.now - sent_at)
        return opened.create("token", SPEC, {})

    assert_buys_one(cloud, repeated)


def test_a_process_knows_better_what_came_of_its_own_request() -> None:
    last = LastPurchase(lambda: 1000.0)
    with pytest.raises(TransientError), last.sending("token"):
        raise TransientError("", code="429")
    last.sent_before("token", 0.5)
    last.require_over("token")
    last.sent_before("another", 0.5)
    with refused(TransientError, "volume.unconfirmed"):
        last.require_over("another")
    last.sent_before("a third", SHOWN_S)
    last.require_over("a third")


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (TransientError("", code="ConnectTimeout"), True),
        (TransientError("", code="500"), True),
        (TransientError("", code="504"), True),
        (TransientError("", code="429"), False),
        (TransientError("", code="login.503"), False),
        (TransientError("", code="DiscoveryFailure"), False),
        (QuotaError("", code="413"), False),
    ],
)
def test_only_a_purchase_that_may_have_been_carried_out_is_waited_for(error: ProviderError, waits: bool) -> None:
    now = 1000.0
    last = LastPurchase(lambda: now)
    with pytest.raises(type(error)), last.sending("token"):
        raise error
    last.require_over("another")
    if waits:
        with refused(TransientError, "volume.unconfirmed"):
            last.require_over("token")
        now += SHOWN_S
    last.require_over("token")


def test_one_that_is_refused_at_once_does_not_hide_an_earlier_one() -> None:
    last = LastPurchase(lambda: 1000.0)
    for code in ("ConnectTimeout", "429"):
        with pytest.raises(TransientError), last.sending("token"):
            raise TransientError("", code=code)
    with refused(TransientError, "volume.unconfirmed"):
        last.require_over("token")
    with last.sending("token"):
        pass
    last.require_over("token")
