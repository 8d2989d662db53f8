"""EBS volumes as the agent's port wants them (entry point `aws` of the group `elastio.providers`).

Level-triggered: each method makes the one call that its name says. An answer that means "already so" is
success after a look; anything else becomes an error of `elastio.errors`. Nothing here waits for a state, sleeps
or retries beyond the SDK's own attempts: the caller looks again and paces itself. Importing this module imports
no SDK.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from elastio.core.model import Identity, Notice, Quote, Volume, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.errors import (
    AuthError,
    ConfigError,
    ProviderError,
    QuotaError,
    RefusedError,
    TransientError,
)
from elastio.units import MIB
from elastio_aws import codes, gp3, identity, prices, refusals, volumes
from elastio_aws.devices import DeviceNames
from elastio_aws.keys import Encrypted
from elastio_aws.notices import NoticeReader
from elastio_aws.settings import Settings, parse

if TYPE_CHECKING:
    from elastio_aws.client import Ec2

MAX_TOKEN = 64  # EC2's limit of a client token, ASCII
PAGE_SIZE = 500
MAX_PAGES = 100
NAME_TRIES = 4
_HELD = (VolumeState.ATTACHING, VolumeState.ATTACHED, VolumeState.BUSY, VolumeState.ELSEWHERE)
_log = logging.getLogger(__name__)


class AwsProvider:
    """The `elastio.ports.VolumeProvider` of one EC2 instance and one backing device."""

    def __init__(self, settings: Settings, backing_uuid: str, wall: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._backing_uuid = backing_uuid
        self._wall = wall
        self._lock = threading.Lock()
        self._ec2: Ec2 | None = None
        self._who: identity.Who | None = None
        self._info: tuple[dict[str, Any] | None] | None = None
        # Seen with this instance's owner tag, which nobody changes: what is asked on the way to a boost relies on it.
        self._ours: set[VolumeId] = set()
        self._encrypted = Encrypted()
        self._devices = DeviceNames()
        self._notices = NoticeReader(settings.metadata_url)
        self._expires = ("", "")  # token, value: a repeated create must not differ from the first

    # --- the port ----------------------------------------------------------------------------------------

    def identify(self) -> Identity:
        """From the identity document and DescribeInstanceTypes; asked once, then remembered."""
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
        """Rounded up to what gp3 is sold in; refused beyond the limits of gp3 or of this instance."""
        if (self.instance_type_info() or {}).get("NvmeSupport") == "unsupported":
            raise RefusedError(
                f"{self.who().instance_type} is a Xen instance: its kernel shows no serials, so a volume would be paid "
                "for and never found; use an instance type built on Nitro."
            )
        purchase = gp3.plan(spec, self.settings.scale, self.settings.iops)
        limit = self._bandwidth_limit()
        if limit is not None and spec.bandwidth_mb_s > limit:
            raise RefusedError(
                f"{spec.bandwidth_mb_s:.0f} MB/s is more than this {self.who().instance_type} carries "
                f"to all its EBS volumes; the limit is {round(limit, 1):g} MB/s."
            )
        return prices.quote(purchase, self.settings, self.who().region)

    def create(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> Volume:
        """CreateVolume with `token` as client token. The same token always leads to the same volume.

        EC2 checks the quota before the token, and calls a token used with other parameters (after a change of
        the settings) a mismatch: in both cases the volume the token already bought is looked up by its tag.
        A volume that the token has bought for another machine (a clone) is never handed over: RefusedError.
        """
        if not (0 < len(token) <= MAX_TOKEN and token.isascii()):
            raise RefusedError(f"A client token is 1 to {MAX_TOKEN} ASCII characters long, not {token!r}.")
        labels = self.tags_for(token, tags)
        try:
            shown = self.ec2().call("create_volume", **self.create_request(token, spec, labels))
        except ProviderError as error:
            if codes.code_of(error) != codes.MISMATCH and not isinstance(error, QuotaError):
                raise
            return self._bought(token, error)
        bought = self._volume(shown, labels)
        if bought.state is VolumeState.FOREIGN:
            raise refusals.others_token(token)
        self._encrypted.born(shown)
        return bought

    def attach(self, volume_id: VolumeId) -> None:
        """AttachVolume under a free device name; up to four names where EC2 finds one taken or does not like it.

        Whose the volume is was seen before, as a rule: then this asks for nothing more.
        """
        if volume_id not in self._ours and self._own(volume_id) is None:
            raise TransientError(f"{volume_id} is not known to EC2 (yet); it is looked at again.")
        for _, name in zip(range(NAME_TRIES), self._devices.propose(volume_id), strict=False):
            try:
                self._attach_as(volume_id, name)
            except RefusedError as error:
                if not refusals.is_about_the_name(error, name):
                    raise
                self._devices.remember(name, "")
            else:
                self._devices.remember(name, volume_id)
                return
        raise TransientError(f"AttachVolume of {volume_id} found no device name that EC2 takes; others come next.")

    def detach(self, volume_id: VolumeId) -> None:
        """DetachVolume, never with Force: that loses what the guest still caches."""
        if self._own(volume_id) is None:
            return
        try:
            self.ec2().call("detach_volume", VolumeId=volume_id, InstanceId=self.who().instance_id)
        except ProviderError as error:
            if codes.code_of(error) not in (codes.INCORRECT_STATE, codes.NOT_ATTACHED, codes.NOT_FOUND):
                raise
            seen = self._seen(volume_id)
            if seen is not None and seen.state in (VolumeState.ATTACHING, VolumeState.ATTACHED):
                raise

    def delete(self, volume_id: VolumeId) -> None:
        """DeleteVolume, after a look that the volume carries this agent's owner tag. Raises NotOursError.

        A volume that EC2 does not show is taken for gone. One created a moment ago may not be shown yet, so a
        caller that has just bought it must first have seen it by `describe` or `list_owned`.
        """
        seen = self._own(volume_id)
        if seen is None or seen.state in (VolumeState.DELETING, VolumeState.GONE):
            return
        try:
            self.ec2().call("delete_volume", VolumeId=volume_id)
        except ProviderError as error:
            if codes.code_of(error) not in (codes.INCORRECT_STATE, codes.IN_USE, codes.NOT_FOUND):
                raise
            self._judge_delete(volume_id, error)

    def describe(self, volume_id: VolumeId) -> Volume | None:
        """The volume now, or None; FOREIGN where its owner tag does not name this instance.

        EC2 is eventually consistent: for a while after `create` None also means "not visible yet", and the
        caller decides how long it believes that. RefusedError, once, where an encrypted volume came to nothing.
        """
        seen = self._seen(volume_id)
        self._encrypted.judge(volume_id, seen)
        return seen

    def list_owned(self) -> tuple[Volume, ...]:
        """Every volume with this instance's owner tag, of whatever backing device."""
        return tuple(self._list({f"tag:{volumes.OWNER_TAG}": self.who().arn}))

    # --- beside the port -----------------------------------------------------------------------------------

    def notice(self) -> Notice | None:
        """Whether EC2 is about to interrupt this spot instance. Asks the metadata service and no SDK."""
        return self._notices.read()

    def tag(self, volume_id: VolumeId, tag: VolumeTag) -> None:
        """CreateTags, which replaces a value. The IAM policy allows this one key, on this instance's own volumes."""
        if volume_id not in self._ours and self._own(volume_id) is None:
            return refusals.require_kept(volume_id, tag)
        tags = volumes.tag_list({volumes.STATE_TAG: tag.value})
        try:
            self.ec2().call("create_tags", Resources=[volume_id], Tags=tags)
        except ProviderError as error:
            if codes.code_of(error) != codes.NOT_FOUND:
                raise
            refusals.require_kept(volume_id, tag)

    def warm_up(self) -> None:
        """Import the SDK and make its client now. Once per SDK version its data is trimmed: two minutes at most.

        Raises errors of `elastio.errors`.
        """
        self.ec2().warm_up()

    def close(self) -> None:
        """Close the connections to EC2; harmless when there are none."""
        with self._lock:
            if self._ec2 is not None:
                self._ec2.close()

    def who(self) -> identity.Who:
        """This instance, asked once and remembered."""
        with self._lock:
            if self._who is None:
                self._who = identity.who(self.settings)
            return self._who

    def ec2(self) -> Ec2:
        """The calls, with the SDK imported on first use."""
        region = self.who().region
        with self._lock:
            if self._ec2 is None:
                from elastio_aws.client import Ec2  # noqa: PLC0415  # 25 MB that an idle agent can do without

                self._ec2 = Ec2(self.settings, region)
            return self._ec2

    def create_request(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> dict[str, Any]:
        """The parameters of CreateVolume. No DeleteOnTermination: it may hold the only copy."""
        purchase = gp3.plan(spec, self.settings.scale, self.settings.iops)
        request: dict[str, Any] = {
            "AvailabilityZone": self.who().zone,
            "ClientToken": token,
            "VolumeType": self.settings.volume_type,
            "Size": purchase.size_gib,
            "Iops": purchase.iops,
            "Throughput": purchase.throughput_mib_s,
            "TagSpecifications": [{"ResourceType": "volume", "Tags": volumes.tag_list(tags)}],
        }
        if self.settings.encrypted:
            request["Encrypted"] = True
        if self.settings.kms_key_id:
            request["KmsKeyId"] = self.settings.kms_key_id
        return request

    def tags_for(self, token: str, tags: Mapping[str, str] | None = None) -> dict[str, str]:
        """All tags of a volume bought with `token`: the operator's, then the caller's, then our own, which win."""
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

    def instance_type_info(self) -> dict[str, Any] | None:
        """EC2's `EbsInfo` of this instance's type, asked once; None when it may not be asked or is not known."""
        if self._info is None:
            kind = self.who().instance_type
            self._info = (self._ask_for_info(kind) if kind else None,)
        return self._info[0]

    def _ask_for_info(self, kind: str) -> dict[str, Any] | None:
        try:
            answer = self.ec2().call("describe_instance_types", InstanceTypes=[kind])
        except (AuthError, RefusedError) as error:
            _log.info("the limits of %s are not known: %s", kind, error)
            return None
        found = answer.get("InstanceTypes") or [{}]
        info: dict[str, Any] = found[0].get("EbsInfo") or {}
        return info

    # --- inside --------------------------------------------------------------------------------------------

    def _attach_as(self, volume_id: VolumeId, name: str) -> None:
        me = self.who().instance_id
        try:
            self.ec2().call("attach_volume", VolumeId=volume_id, InstanceId=me, Device=name)
        except ProviderError as error:
            if codes.code_of(error) not in (codes.IN_USE, codes.INCORRECT_STATE):
                raise
            seen = self._own(volume_id)
            if seen is not None and seen.state == VolumeState.ELSEWHERE:
                raise RefusedError(f"{volume_id} is attached to another instance; detach it there first.") from error
            if seen is None or seen.state not in (VolumeState.ATTACHING, VolumeState.ATTACHED):
                raise

    def _judge_delete(self, volume_id: VolumeId, error: ProviderError) -> None:
        seen = self._seen(volume_id)
        if seen is None or seen.state in (VolumeState.DELETING, VolumeState.GONE):
            return
        if seen.state in _HELD:
            raise RefusedError(f"{volume_id} is {seen.state} and cannot be deleted; detach it first.") from error
        raise error

    def _own(self, volume_id: VolumeId) -> Volume | None:
        """The volume by a look of now. Raises NotOursError for one that does not carry this instance's tag."""
        seen = self._seen(volume_id)
        if seen is not None and seen.state is VolumeState.FOREIGN:
            raise refusals.not_ours(volume_id)
        return seen

    def _seen(self, volume_id: VolumeId) -> Volume | None:
        shown = self._shown(volume_id)
        return None if shown is None else self._volume(shown)

    def _bought(self, token: str, error: ProviderError) -> Volume:
        """What the token has bought for this instance. Raises `error` where that is nothing."""
        shown = list(self._list({f"tag:{volumes.CYCLE_TAG}": token}))
        bought = volumes.first_alive(v for v in shown if v.state is not VolumeState.FOREIGN)
        if bought is not None:
            return bought
        if codes.code_of(error) == codes.MISMATCH and shown and shown[0].state is VolumeState.FOREIGN:
            raise refusals.others_token(token) from error
        raise error

    def _volume(self, shown: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Volume:
        """`labels` stand in for tags that an answer does not show yet, as does what an earlier one has shown."""
        volume_id, arn = VolumeId(str(shown.get("VolumeId"))), self.who().arn
        known = labels if labels is not None or volume_id not in self._ours else {volumes.OWNER_TAG: arn}
        seen = volumes.volume_of(shown, self.who().instance_id, self.settings.scale, known)
        if {**(known or {}), **volumes.tags_of(shown)}.get(volumes.OWNER_TAG) == arn:
            self._ours.add(volume_id)
            return seen
        self._ours.discard(volume_id)
        return replace(seen, state=VolumeState.FOREIGN)

    def _shown(self, volume_id: VolumeId) -> dict[str, Any] | None:
        try:
            answer = self.ec2().call("describe_volumes", VolumeIds=[volume_id])
        except ProviderError as error:
            if codes.code_of(error) == codes.NOT_FOUND:
                return None
            raise
        found: list[dict[str, Any]] = answer.get("Volumes") or []
        if any(shown.get("VolumeId") != volume_id for shown in found):
            raise TransientError(f"DescribeVolumes of {volume_id} showed another volume; it is asked again.")
        return found[0] if found else None

    def _list(self, filters: Mapping[str, str]) -> Iterator[Volume]:
        """What a filter let through is held against it once more: a foreign volume must never look like ours."""
        wanted = {name.removeprefix("tag:"): value for name, value in filters.items()}
        for shown in self.pages(filters):
            tags = volumes.tags_of(shown)
            if any(tags.get(name) != value for name, value in wanted.items()):
                raise TransientError("DescribeVolumes showed a volume without the tag it was asked for; asked again.")
            yield self._volume(shown)

    def pages(self, filters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Every volume that passes the filters, page by page. Beyond MAX_PAGES: TransientError."""
        request: dict[str, Any] = {
            "Filters": [{"Name": name, "Values": [value]} for name, value in filters.items()],
            "MaxResults": PAGE_SIZE,
        }
        for _ in range(MAX_PAGES):
            answer = self.ec2().call("describe_volumes", **request)
            yield from answer.get("Volumes") or ()
            following = answer.get("NextToken")
            if not following:
                return
            request["NextToken"] = following
        raise TransientError(f"DescribeVolumes went on beyond {MAX_PAGES} pages; it is asked again.")

    def _bandwidth_limit(self) -> float | None:
        """What the instance carries all day; the higher figure EC2 names holds for 30 minutes a day."""
        info = self.instance_type_info() or {}
        baseline = (info.get("EbsOptimizedInfo") or {}).get("BaselineThroughputInMBps")
        return None if baseline is None else float(baseline) * self.settings.scale.mib_s_bytes / MIB


def open_provider(settings: Mapping[str, object], backing_uuid: str) -> AwsProvider:
    """The provider for `[provider.aws]`; asks nothing yet. Raises ConfigError with one sentence."""
    if find_spec("boto3") is None:
        raise ConfigError("The provider aws needs the AWS SDK; install elastio[aws].")
    return AwsProvider(parse(settings), backing_uuid)
