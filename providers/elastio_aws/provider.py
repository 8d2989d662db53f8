"""EBS volumes behind the agent's port (entry point `aws` of the group `elastio.providers`).

Level-triggered: each method makes the one call of its name. If EC2 refuses because the state is already as requested,
DescribeVolumes confirms it and the method returns; any other refusal becomes an error of `elastio.errors`. Nothing here
waits for a state, sleeps or retries beyond the SDK's own attempts: the caller polls and backs off. Importing this
module does not import the SDK.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from elastio.core.foreign import OF_OTHERS, ForeignVolume, state_of_others
from elastio.core.model import Identity, Notice, Quote, Serial, Volume, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.errors import (
    AuthError,
    ConfigError,
    ProviderError,
    QuotaError,
    RefusedError,
    TransientError,
)
from elastio.units import MIB
from elastio_aws import codes, gp3, identity, prices, queries, refusals, takeover, volumes
from elastio_aws.devices import DeviceNames
from elastio_aws.encryption import PendingEncrypted
from elastio_aws.notices import NoticeReader
from elastio_aws.settings import Settings, parse

if TYPE_CHECKING:
    from elastio_aws.client import Ec2

MAX_TOKEN = 64  # EC2's limit of a client token, ASCII
MAX_PAGES = 100
NAME_TRIES = 4
_IN_USE = (VolumeState.ATTACHING, VolumeState.ATTACHED, VolumeState.BUSY, VolumeState.ELSEWHERE)
_log = logging.getLogger(__name__)


class AwsProvider:
    """The `elastio.ports.VolumeProvider` of one EC2 instance and one backing device."""

    def __init__(self, settings: Settings, backing_uuid: str, wall: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._backing_uuid = backing_uuid
        self._wall = wall
        self._lock = threading.Lock()
        self._ec2: Ec2 | None = None
        self._who: identity.InstanceIdentity | None = None
        self._ebs_info: tuple[dict[str, Any] | None] | None = None
        # Volumes seen with this instance's owner tag, which a response need not show again yet.
        self._ours: set[VolumeId] = set()
        self._bought: set[VolumeId] = set()  # by this process: their owner is not asked at the start of a boost
        self._encrypted = PendingEncrypted()
        self._devices = DeviceNames()
        self._notices = NoticeReader(settings.metadata_url)
        self._expires = ("", "")  # token, value: a repeated create must be identical to the first

    # --- the port ----------------------------------------------------------------------------------------

    def identify(self) -> Identity:
        """From the identity document and DescribeInstanceTypes; requested once, then cached."""
        me = self.who()
        return Identity(
            cloud="aws",
            instance_id=me.instance_id,
            zone=me.zone,
            region=me.region,
            instance_type=me.instance_type,
            bandwidth_limit_mb_s=self._bandwidth_limit(),
        )

    def quote(self, spec: VolumeSpec) -> Quote:
        """Rounded up to what gp3 provides; refused beyond the limits of gp3 or of this instance."""
        if (self.ebs_info() or {}).get("NvmeSupport") == "unsupported":
            raise RefusedError(
                f"{self.who().instance_type} is a Xen instance: its kernel shows no serials, so the disk of a volume "
                "cannot be found; use an instance type built on Nitro.",
                code="instance.xen",
            )
        parameters = gp3.parameters_for(spec, self.settings.scale, self.settings.iops)
        limit = self._bandwidth_limit()
        if limit is not None and spec.bandwidth_mb_s > limit:
            raise RefusedError(
                f"{spec.bandwidth_mb_s:.0f} MB/s is more than this {self.who().instance_type} provides "
                f"for all its EBS volumes; the limit is {round(limit, 1):g} MB/s.",
                code="instance.bandwidth",
            )
        return prices.quote(parameters, self.settings, self.who().region)

    def create(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> Volume:
        """CreateVolume with `token` as client token. The same token always returns the same volume.

        EC2 checks the quota before the token, and rejects a token with other parameters (after a change of the
        settings) as a mismatch: in both cases the volume that the token bought before is looked up by its tag.
        Raises RefusedError if the token bought a volume for another machine (a clone).
        """
        if not (0 < len(token) <= MAX_TOKEN and token.isascii()):
            text = f"A client token has 1 to {MAX_TOKEN} ASCII characters; {token!r} does not."
            raise RefusedError(text, code="token.invalid")
        labels = self.tags_for(token, tags)
        try:
            shown = self.ec2().call("create_volume", **self.create_request(token, spec, labels))
        except ProviderError as error:
            if error.code != codes.MISMATCH and not isinstance(error, QuotaError):
                raise
            return self._find_by_token(token, error)
        bought = self._volume(shown, labels)
        if bought.state in OF_OTHERS:
            raise refusals.foreign_token(token)
        self._bought.add(bought.id)
        self._encrypted.created(shown)
        return bought

    def attach(self, volume_id: VolumeId) -> None:
        """AttachVolume with a free device name; tries up to four if EC2 finds a name taken or invalid.

        For a volume that was just bought this is the only call. One that was taken over may have been taken over by
        another machine since, which has a copy of the same backing device: only the last tag tells whose it is.
        """
        if volume_id not in self._bought & self._ours and self._require_own(volume_id) is None:
            text = f"{volume_id} is not known to EC2 (yet); the call will be repeated."
            raise TransientError(text, code="volume.unknown")
        for _, name in zip(range(NAME_TRIES), self._devices.propose(volume_id), strict=False):
            try:
                self._attach_as(volume_id, name)
            except RefusedError as error:
                if not refusals.is_device_name_error(error, name):
                    raise
                self._devices.remember(name, "")
            else:
                self._devices.remember(name, volume_id)
                return
        text = f"EC2 accepted no device name for {volume_id}; other names will be tried."
        raise TransientError(text, code="volume.device-name")

    def detach(self, volume_id: VolumeId) -> None:
        """DetachVolume, never with Force, which loses what the guest still caches."""
        if self._require_own(volume_id) is None:
            return
        try:
            self.ec2().call("detach_volume", VolumeId=volume_id, InstanceId=self.who().instance_id)
        except ProviderError as error:
            if error.code not in (codes.INCORRECT_STATE, codes.NOT_ATTACHED, codes.NOT_FOUND):
                raise
            seen = self._lookup(volume_id)
            if seen is not None and seen.state in (VolumeState.ATTACHING, VolumeState.ATTACHED):
                raise

    def delete(self, volume_id: VolumeId) -> None:
        """DeleteVolume, after a check that the volume has this agent's owner tag. Raises NotOursError.

        A volume that EC2 does not show counts as gone. A new one may not be shown yet, so a caller that has just
        bought it must first have seen it in `describe` or `list_owned`.
        """
        seen = self._require_own(volume_id)
        if seen is None or seen.state in (VolumeState.DELETING, VolumeState.GONE):
            return
        try:
            self.ec2().call("delete_volume", VolumeId=volume_id)
        except ProviderError as error:
            if error.code not in (codes.INCORRECT_STATE, codes.IN_USE, codes.NOT_FOUND):
                raise
            self._on_refused_delete(volume_id, error)

    def describe(self, volume_id: VolumeId) -> Volume | None:
        """The volume now, or None; FOREIGN or UNLABELED if its owner tag does not name this instance.

        EC2 is eventually consistent: for a while after `create` None also means "not visible yet", and the caller
        decides how long to wait. Raises RefusedError, once, if an encrypted volume failed while it was created.
        """
        seen = self._lookup(volume_id)
        self._encrypted.check(volume_id, seen)
        return seen

    def list_owned(self) -> tuple[Volume, ...]:
        """Every volume with this instance's owner tag, whatever its backing device."""
        return tuple(self._list({f"tag:{volumes.OWNER_TAG}": self.who().arn}))

    # --- optional protocols, checks ------------------------------------------------------------------------

    def notice(self) -> Notice | None:
        """The notice that EC2 is about to interrupt this instance. From the metadata service, without the SDK."""
        return self._notices.read()

    def tag(self, volume_id: VolumeId, tag: VolumeTag) -> None:
        """CreateTags, which replaces the value. The IAM policy allows only this key, and only on own volumes."""
        if volume_id not in self._ours and self._require_own(volume_id) is None:
            return refusals.require_stored_tag(volume_id, tag)
        tags = volumes.tag_list({volumes.STATE_TAG: tag.value})
        try:
            self.ec2().call("create_tags", Resources=[volume_id], Tags=tags)
        except ProviderError as error:
            if error.code != codes.NOT_FOUND:
                raise
            refusals.require_stored_tag(volume_id, tag)

    def foreign(self, volume_id: VolumeId) -> ForeignVolume | None:
        """DescribeVolumes, and DescribeInstanceStatus of the instance that its owner tag names."""
        shown = queries.describe_volume(self.ec2(), volume_id)
        if shown is None:
            return None
        me, owner = self.who(), volumes.tags_of(shown).get(volumes.OWNER_TAG, "")
        seen = volumes.volume_of(shown, me.instance_id, self.settings.scale)
        return ForeignVolume(seen, owner, takeover.owner_state(self.ec2(), owner, me))

    def list_for_backing(self) -> tuple[Volume, ...]:
        """DescribeVolumes, which no policy limits to own volumes: of this account and region, whoever the owner is."""
        me, wanted = self.who().instance_id, {f"tag:{volumes.BACKING_TAG}": self._backing_uuid}
        return tuple(volumes.volume_of(shown, me, self.settings.scale) for shown in self._described(wanted))

    def take_over(self, volume_id: VolumeId) -> Volume:
        """CreateTags; raises TransientError until DescribeVolumes shows the new owner."""
        takeover.take_over(self.ec2(), volume_id, self.who())
        seen = self._lookup(volume_id)
        if seen is None or seen.state in OF_OTHERS:
            text = f"EC2 does not show the new owner of {volume_id} yet; the call will be repeated."
            raise TransientError(text, code="volume.unknown")
        return seen

    def bandwidth_of(self, serial: Serial) -> float | None:
        """From DescribeVolumes; None for a type other than gp3, whose speed depends on size and credits."""
        volume_id = volumes.id_of(serial)
        shown = None if volume_id is None else queries.describe_volume(self.ec2(), volume_id)
        return None if shown is None else volumes.reserved_mb_s(shown, self.settings.scale)

    def warm_up(self) -> None:
        """Import the SDK and create its client now. Trims the SDK's data once per version: two minutes at most.

        Raises errors of `elastio.errors`.
        """
        self.ec2().warm_up()

    def close(self) -> None:
        """Close the connections to EC2, if there are any."""
        with self._lock:
            if self._ec2 is not None:
                self._ec2.close()

    def who(self) -> identity.InstanceIdentity:
        """This instance; requested once, then cached."""
        with self._lock:
            if self._who is None:
                self._who = identity.who(self.settings)
            return self._who

    def ec2(self) -> Ec2:
        """The EC2 client, with the SDK imported on first use."""
        region = self.who().region
        with self._lock:
            if self._ec2 is None:
                from elastio_aws.client import Ec2  # noqa: PLC0415  # saves an idle agent 25 MB

                self._ec2 = Ec2(self.settings, region)
            return self._ec2

    def create_request(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> dict[str, Any]:
        """The parameters of CreateVolume. Never DeleteOnTermination: the volume may hold the only copy of data."""
        parameters = gp3.parameters_for(spec, self.settings.scale, self.settings.iops)
        request: dict[str, Any] = {
            "AvailabilityZone": self.who().zone,
            "ClientToken": token,
            "VolumeType": self.settings.volume_type,
            "Size": parameters.size_gib,
            "Iops": parameters.iops,
            "Throughput": parameters.throughput_mib_s,
            "TagSpecifications": [{"ResourceType": "volume", "Tags": volumes.tag_list(tags)}],
        }
        if self.settings.encrypted:
            request["Encrypted"] = True
        if self.settings.kms_key_id:
            request["KmsKeyId"] = self.settings.kms_key_id
        return request

    def tags_for(self, token: str, tags: Mapping[str, str] | None = None) -> dict[str, str]:
        """All tags of a volume bought with `token`: the operator's, the caller's and our own; the later ones win."""
        if self._expires[0] != token:
            self._expires = (token, volumes.expires(self._wall(), self.settings.lifetime_s))
        me = self.who()
        return {
            **self.settings.extra_tags,
            **(tags or {}),
            volumes.OWNER_TAG: me.arn,
            volumes.CYCLE_TAG: token,
            volumes.BACKING_TAG: self._backing_uuid,
            volumes.EXPIRES_TAG: self._expires[1],
            volumes.STATE_TAG: VolumeTag.CLEAN.value,
            volumes.NAME_TAG: f"elastio {me.instance_id}",
        }

    def ebs_info(self) -> dict[str, Any] | None:
        """EC2's `EbsInfo` of this instance's type, requested once; None if not allowed or not known."""
        if self._ebs_info is None:
            kind = self.who().instance_type
            self._ebs_info = (self._describe_type(kind) if kind else None,)
        return self._ebs_info[0]

    def _describe_type(self, kind: str) -> dict[str, Any] | None:
        try:
            response = self.ec2().call("describe_instance_types", InstanceTypes=[kind])
        except (AuthError, RefusedError) as error:
            _log.info("limits of %s unknown: %s", kind, error)
            return None
        found = response.get("InstanceTypes") or [{}]
        info: dict[str, Any] = found[0].get("EbsInfo") or {}
        return info

    # --- internal ------------------------------------------------------------------------------------------

    def _attach_as(self, volume_id: VolumeId, name: str) -> None:
        me = self.who().instance_id
        try:
            self.ec2().call("attach_volume", VolumeId=volume_id, InstanceId=me, Device=name)
        except ProviderError as error:
            if error.code not in (codes.IN_USE, codes.INCORRECT_STATE):
                raise
            seen = self._require_own(volume_id)
            if seen is not None and seen.state == VolumeState.ELSEWHERE:
                text = f"{volume_id} is attached to another instance; detach it there first."
                raise RefusedError(text, code="volume.elsewhere") from error
            if seen is None or seen.state not in (VolumeState.ATTACHING, VolumeState.ATTACHED):
                raise

    def _on_refused_delete(self, volume_id: VolumeId, error: ProviderError) -> None:
        seen = self._lookup(volume_id)
        if seen is None or seen.state in (VolumeState.DELETING, VolumeState.GONE):
            return
        if seen.state in _IN_USE:
            text = f"{volume_id} is {seen.state} and cannot be deleted; detach it first."
            raise RefusedError(text, code="volume.in-use") from error
        raise error

    def _require_own(self, volume_id: VolumeId) -> Volume | None:
        """The volume as it is now. Raises NotOursError if it does not have this instance's tag."""
        seen = self._lookup(volume_id)
        if seen is not None and seen.state in OF_OTHERS:
            raise refusals.foreign_volume(volume_id)
        return seen

    def _lookup(self, volume_id: VolumeId) -> Volume | None:
        shown = queries.describe_volume(self.ec2(), volume_id)
        return None if shown is None else self._volume(shown)

    def _find_by_token(self, token: str, error: ProviderError) -> Volume:
        """The volume that the token bought for this instance. Raises `error` if there is none."""
        shown = list(self._list({f"tag:{volumes.CYCLE_TAG}": token}))
        bought = volumes.first_alive(v for v in shown if v.state not in OF_OTHERS)
        if bought is not None:
            return bought
        if error.code == codes.MISMATCH and shown and shown[0].state in OF_OTHERS:
            raise refusals.foreign_token(token) from error
        raise error

    def _volume(self, shown: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Volume:
        """`labels` replace tags that a response does not show yet, as does an owner tag that an earlier one showed."""
        volume_id, arn = VolumeId(str(shown.get("VolumeId"))), self.who().arn
        known = labels if labels is not None or volume_id not in self._ours else {volumes.OWNER_TAG: arn}
        seen = volumes.volume_of(shown, self.who().instance_id, self.settings.scale, known)
        owner = {**(known or {}), **volumes.tags_of(shown)}.get(volumes.OWNER_TAG)
        if owner == arn:
            self._ours.add(volume_id)
            return seen
        self._ours.discard(volume_id)
        return replace(seen, state=state_of_others(seen.state, owner))

    def _list(self, filters: Mapping[str, str]) -> Iterator[Volume]:
        return (self._volume(shown) for shown in self._described(filters))

    def _described(self, filters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Checks the result against the filter again: a foreign volume must never be taken for ours."""
        wanted = {name.removeprefix("tag:"): value for name, value in filters.items()}
        for shown in queries.describe_volumes(self.ec2(), filters, MAX_PAGES):
            tags = volumes.tags_of(shown)
            if any(tags.get(name) != value for name, value in wanted.items()):
                text = "DescribeVolumes returned a volume that does not match the filter; the call will be repeated."
                raise TransientError(text, code="response.other-volume")
            yield shown

    def _bandwidth_limit(self) -> float | None:
        """The instance's baseline in MB/s; EC2's maximum is available for 30 minutes a day only."""
        info = self.ebs_info() or {}
        baseline = (info.get("EbsOptimizedInfo") or {}).get("BaselineThroughputInMBps")
        return None if baseline is None else float(baseline) * self.settings.scale.mib_s_bytes / MIB


def open_provider(settings: Mapping[str, object], backing_uuid: str) -> AwsProvider:
    """The provider for `[provider.aws]`; makes no call yet. Raises ConfigError."""
    if find_spec("boto3") is None:
        raise ConfigError(
            "The provider aws needs the AWS SDK; in a checkout, run pip install '.[aws]'.", code="sdk.missing"
        )
    return AwsProvider(parse(settings), backing_uuid)
