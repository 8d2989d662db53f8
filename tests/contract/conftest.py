"""The clouds of the contract suite: each with its provider, and with means to inject failures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from elastio_shelf.shelf import Shelf

os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # read when moto is imported

from elastio import registry
from elastio.core.model import Serial, VolumeId, VolumeSpec
from elastio.ports import ListsForBacking, TagsVolumes, TellsNotices, VolumeProvider
from elastio.units import GIB
from elastio_aws import identity
from elastio_aws.provider import AwsProvider, open_provider
from elastio_aws.volumes import serial_of
from elastio_sim import faults as sim_faults
from elastio_sim import provider as sim
from elastio_testbed.ec2 import Ec2Endpoint, Fault, FaultKind
from elastio_testbed.openstack.cassette import Cassette
from elastio_testbed.openstack.cloud_fixture import OpenstackCloud, Tenant
from elastio_testbed.openstack.proxy import ApiProxy

SPEC = VolumeSpec(10 * GIB, 200.0)
BEYOND_INSTANCE = VolumeSpec(10 * GIB, 700.0)  # an m7i.4xlarge has 625 MB/s
TOO_FAST_FOR_ALL = VolumeSpec(10 * GIB, 1e6)
BACKING = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"
SETTLE_S = 30.0
BOOT_S = 240.0
MODE = os.environ.get("ELASTIO_OPENSTACK", "")
RECORDED = Path(__file__).parent / "recorded"
# A call to the endpoint takes milliseconds; on a busy machine it may take a second.
CREATION_S = 5.0


class Cloud(Protocol):
    """One cloud under test."""

    provider: VolumeProvider
    spec: VolumeSpec
    too_fast: VolumeSpec

    def settle(self) -> None:
        """Wait until every operation has ended; at most a fixed time."""

    def foreign(self, token: str = "") -> VolumeId:
        """A volume in the same account that another machine bought, with this token."""

    def serial(self, volume_id: VolumeId) -> Serial:
        """The serial of this volume's disk in the guest."""

    def inject(self, call: str, kind: str) -> None:
        """The next `call` fails: "throttled", "quota", "auth", "refused", or "lost" (done, without a response)."""

    def delay_creation(self) -> None:
        """The next volume is not available until after several calls."""

    def billed_volumes(self) -> set[VolumeId]:
        """The volumes that are billed."""


@dataclass
class Ec2Cloud:
    """The AWS provider against an endpoint with EC2's life cycle, credentials from the metadata service."""

    endpoint: Ec2Endpoint
    instance_id: str
    open: Callable[..., AwsProvider]
    provider: AwsProvider
    spec: VolumeSpec = SPEC
    too_fast: VolumeSpec = BEYOND_INSTANCE

    def settle(self) -> None:
        self.endpoint.settle(SETTLE_S)

    def foreign(self, token: str = "") -> VolumeId:
        volume = self.clone().create(token or "token-of-another", self.spec, {})
        self.settle()
        return volume.id

    def of_dead_machine(self) -> VolumeId:
        return self.foreign()

    def clone(self) -> AwsProvider:
        """The provider of one more instance of the same image."""
        other = self.endpoint.add_instance(None, "m7i.4xlarge")
        return self.open(metadata_url=self.endpoint.imds_url(other))

    def serial(self, volume_id: VolumeId) -> Serial:
        return serial_of(volume_id)

    def inject(self, call: str, kind: str) -> None:
        action = {"describe": "DescribeVolumes", "list_owned": "DescribeVolumes"}.get(call, f"{call.title()}Volume")
        fault = {
            "throttled": Fault(FaultKind.THROTTLE, action),
            "quota": Fault(FaultKind.ERROR, action, code="VolumeLimitExceeded"),
            "auth": Fault(FaultKind.ERROR, action, code="UnauthorizedOperation"),
            "refused": Fault(FaultKind.ERROR, action, code="InvalidParameterCombination"),
            "lost": Fault(FaultKind.DROP_AFTER, action),
        }[kind]
        self.endpoint.faults.replace([fault])

    def delay_creation(self) -> None:
        self.endpoint.faults.replace([Fault(FaultKind.SLOW, "CreateVolume", seconds=CREATION_S)])

    def billed_volumes(self) -> set[VolumeId]:
        return {VolumeId(row.id) for row in self.endpoint.live_volumes()}


@dataclass
class SimCloud:
    """The simulator's provider, which the agent's own tests rely on."""

    provider: sim.SimProvider
    spec: VolumeSpec = SPEC
    too_fast: VolumeSpec = TOO_FAST_FOR_ALL

    def settle(self) -> None:
        while (at := self.provider.next_event_at()) is not None:
            self.provider.clock.advance_to(max(at, self.provider.clock.elapsed()))
            self.provider.tick()
        self.provider.clock.advance(10.0)  # longer than the lag of describe

    def foreign(self, token: str = "") -> VolumeId:
        return self.provider.add_foreign_volume(token=token)

    def of_dead_machine(self) -> VolumeId:
        volume = self.provider.volumes[self.foreign()]
        volume.owner, volume.backing_uuid = "i-dead", BACKING
        return volume.id

    def serial(self, volume_id: VolumeId) -> Serial:
        return Serial(volume_id.replace("-", "")[:20])

    def inject(self, call: str, kind: str) -> None:
        kinds = {
            "throttled": sim_faults.FaultMode.THROTTLE,
            "quota": sim_faults.FaultMode.QUOTA,
            "auth": sim_faults.FaultMode.EXPIRED,
            "refused": sim_faults.FaultMode.REFUSE,
            "lost": sim_faults.FaultMode.LOSE_REPLY,
        }
        self.provider.calls.faults = sim_faults.FaultPlan([sim_faults.Fault(call, kinds[kind])])

    def delay_creation(self) -> None:
        """Nothing to do: the simulator's clock does not advance between calls."""

    def billed_volumes(self) -> set[VolumeId]:
        return {volume.id for volume in self.provider.existing()}


@pytest.fixture(scope="session")
def sdk_cache(runs_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trimmed SDK data, shared by all tests."""
    return tmp_path_factory.mktemp("botocore")


@pytest.fixture
def ec2_cloud(tmp_path: Path, sdk_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2Cloud]:
    for name in [key for key in os.environ if key.startswith("AWS_") or key.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setattr(identity, "ASSET_TAG", tmp_path / "none")  # these may run on an instance of EC2
    opened: list[AwsProvider] = []
    with Ec2Endpoint(tmp_path / "volumes", latency_scale=0.02, rate_limits=False) as endpoint:
        instance_id = endpoint.add_instance(None, "m7i.4xlarge")

        def open_aws(**settings: object) -> AwsProvider:
            known: dict[str, object] = {
                "endpoint_url": endpoint.url,
                "metadata_url": endpoint.imds_url(instance_id),
                "cache_dir": str(sdk_cache),
                "max_attempts": 1,
            }
            opened.append(open_provider({**known, **settings}, BACKING))
            return opened[-1]

        yield Ec2Cloud(endpoint, instance_id, open_aws, open_aws())
        for provider in opened:
            provider.close()


@pytest.fixture
def sim_cloud() -> SimCloud:
    return SimCloud(sim.open_provider({"seed": 1}, BACKING))


@pytest.fixture(scope="session")
def tenant() -> Iterator[Tenant | None]:
    """The real services if ELASTIO_OPENSTACK is `live` or `record`; None to replay the recordings of them.

    ELASTIO_OPENSTACK_SERVER is the id of a running server; without it one is booted for all tests.
    """
    if not MODE:
        yield None
        return
    from elastio_testbed.image import build_guest_image
    from elastio_testbed.openstack.lab import open_lab
    from elastio_testbed.openstack.server import boot

    lab = open_lab(print)
    known = os.environ.get("ELASTIO_OPENSTACK_SERVER")
    if known:
        yield Tenant(lab, known)
        return
    server = boot(lab, build_guest_image(), "contract")
    try:
        server.agent.wait_ready(BOOT_S)
        yield Tenant(lab, server.id)
    finally:
        server.delete()


@pytest.fixture
def openstack_cloud(
    runs_programs: None, tenant: Tenant | None, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[OpenstackCloud]:
    path = RECORDED / f"{request.node.name}.json"
    cassette = Cassette.load(path) if tenant is None else Cassette()
    with ApiProxy(cassette, live=tenant is not None) as proxy:
        cloud = OpenstackCloud(proxy, tenant, tmp_path)
        yield cloud
        cloud.close()
    if MODE == "record":
        cassette.save(path)
    if tenant is None:
        assert cassette.failure is None
        assert cassette.finished(), "fewer requests were made than recorded"


@dataclass
class ShelfCloud:
    """The provider of the how-to: the same requirements for a third party's provider."""

    shelf: Shelf
    provider: VolumeProvider
    spec: VolumeSpec = SPEC
    too_fast: VolumeSpec = TOO_FAST_FOR_ALL

    def settle(self) -> None:
        self.shelf.settle()

    def foreign(self, token: str = "") -> VolumeId:
        row = self.shelf.make(token or "other", 1, {"elastio:owner": "box-2"}, 0.0)
        self.shelf.settle()
        return VolumeId(row["name"])

    def serial(self, volume_id: VolumeId) -> Serial:
        return Serial(volume_id[:20])

    def inject(self, call: str, kind: str) -> None:
        calls = {"create": "make", "describe": "row", "list_owned": "list"}
        codes = {"throttled": "busy", "quota": "full", "auth": "forbidden", "refused": "wrong", "lost": "silent"}
        self.shelf.spoil(calls.get(call, call), codes[kind])

    def delay_creation(self) -> None:
        """Nothing to do: a change ends only in `settle`."""

    def billed_volumes(self) -> set[VolumeId]:
        return {VolumeId(row["name"]) for row in self.shelf.rows() if row["state"] != "scrapping"}


@pytest.fixture
def shelf_cloud(tmp_path: Path) -> ShelfCloud:
    settings = {"folder": str(tmp_path), "machine": "box-1"}
    return ShelfCloud(Shelf(tmp_path), registry.open_provider("shelf", settings, BACKING))


# The optional protocols of each cloud's provider.
OPTIONAL: dict[str, set[type]] = {
    "ec2_cloud": {TagsVolumes, TellsNotices, ListsForBacking},
    "sim_cloud": {TagsVolumes, TellsNotices, ListsForBacking},
    "openstack_cloud": {TagsVolumes, ListsForBacking},
    "shelf_cloud": set(),
}


def _every(*protocols: type, without: str = "") -> Any:
    """A fixture: every cloud in turn whose provider has these optional protocols."""
    names = [name for name, optional in OPTIONAL.items() if optional.issuperset(protocols) and name != without]

    @pytest.fixture(params=names)
    def found(runs_programs: None, request: pytest.FixtureRequest) -> Any:
        return request.getfixturevalue(request.param)

    return found


cloud, tagging_cloud, noticing_cloud = _every(), _every(TagsVolumes), _every(TellsNotices)
# Cinder's answer to this list was not recorded yet: tests/unit/elastio_openstack/test_takeover.py has made-up ones.
listing_cloud = _every(ListsForBacking, without="openstack_cloud")


@pytest.fixture
def optional(request: pytest.FixtureRequest) -> set[type]:
    """The optional protocols of the provider of `cloud`."""
    return OPTIONAL[request.node.callspec.params["cloud"]]
