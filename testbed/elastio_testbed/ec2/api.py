"""The EC2 actions of volumes with EBS's life cycle; moto answers all others."""

from __future__ import annotations

import base64
import binascii

from moto.core.request import Request
from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import DryRunClientError, FilterNotImplementedError
from moto.ec2.responses import EC2Response
from moto.ec2.utils import generic_filter

from elastio_testbed.ec2 import attachments, volumes
from elastio_testbed.ec2.rows import api_attachment, api_volume
from elastio_testbed.ec2.store import LabBackend, LabVolume
from elastio_testbed.ec2.world import ApiError, World

# DescribeVolumes, EC2 API reference.
_PAGE_MIN, _PAGE_MAX = 5, 1_000


class LabResponse(EC2Response):
    """Answers one request. Every public method is an action, found by its name. Call with the world's lock held."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    @property
    def ec2_backend(self) -> LabBackend:
        """The objects of this endpoint, not moto's global ones: endpoints do not share volumes."""
        return self._world.backend

    def answer(self, request: Request) -> tuple[int, dict[str, str], str | bytes]:
        """Status, headers and body. Raises NotImplementedError for an action that moto does not support."""
        self.setup_class(request)
        status, headers, body = self.call_action()
        return int(status), {name: str(value) for name, value in headers.items()}, body

    def create_volume(self) -> ActionResult:
        """CreateVolume."""
        if self._get_param("VolumeType") != "gp3":
            raise ApiError("UnsupportedOperation", "The laboratory has gp3 volumes only.")
        encrypted = bool(self._get_param("Encrypted", False)) or self._world.encrypts
        wanted = volumes.NewVolume(
            size_gib=int(self._get_param("Size")),
            zone=self._get_param("AvailabilityZone"),
            iops=int(self._get_param("Iops", volumes.GP3_IOPS)),
            throughput_mib_s=int(self._get_param("Throughput", volumes.GP3_MIB_S)),
            encrypted=encrypted,
            tags=self._parse_tag_specification().get("volume", {}),
            kms_key_id=(self._get_param("KmsKeyId") or self._world.default_key) if encrypted else None,
        )
        volumes.check_new(self._world, wanted)
        self.error_on_dryrun()
        token = self._get_param("ClientToken") or None
        if token is not None and (len(token) > 64 or not token.isascii()):
            raise ApiError("InvalidParameterValue", "A client token has at most 64 ASCII characters.")
        volume = volumes.create(self._world, wanted, token, volumes.digest_of(self.params))
        return ActionResult(api_volume(volume))

    def get_ebs_encryption_by_default(self) -> ActionResult:
        """GetEbsEncryptionByDefault."""
        self.error_on_dryrun()
        return ActionResult({"EbsEncryptionByDefault": self._world.encrypts})

    def get_ebs_default_kms_key_id(self) -> ActionResult:
        """GetEbsDefaultKmsKeyId, which moto does not support."""
        self.error_on_dryrun()
        return ActionResult({"KmsKeyId": self._world.default_key})

    def describe_volumes(self) -> ActionResult:
        """DescribeVolumes, with filters and paging."""
        ids = self._get_param("VolumeIds", [])
        found = [volumes.find(self._world, each) for each in ids]
        self.error_on_dryrun()
        if not ids:
            found = [volume for volume in self.ec2_backend.lab_volumes() if volume.visible]
        try:
            matching = generic_filter(self._filters_from_querystring(), found)
        except FilterNotImplementedError as error:
            raise ApiError("InvalidParameterValue", f"The filter is invalid: {error}") from error
        page, token = self._page(matching, bool(ids))
        rows = [api_volume(volume) for volume in page]
        return ActionResult({"Volumes": rows, **({"NextToken": token} if token else {})})

    def attach_volume(self) -> ActionResult:
        """AttachVolume."""
        volume = volumes.find(self._world, self._get_param("VolumeId"))
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        device = self._get_param("Device")
        self.error_on_dryrun()
        return ActionResult(api_attachment(attachments.attach(self._world, volume, instance, device)))

    def detach_volume(self) -> ActionResult:
        """DetachVolume. `Force` is an ordinary attempt: the laboratory does not take a disk from a running guest."""
        volume = volumes.find(self._world, self._get_param("VolumeId"))
        volumes.authorize_taking(self._world, volume)
        self.error_on_dryrun()
        instance_id, device = self._get_param("InstanceId"), self._get_param("Device")
        return ActionResult(api_attachment(attachments.detach(self._world, volume, instance_id, device)))

    def delete_volume(self) -> ActionResult:
        """DeleteVolume."""
        volume = volumes.find(self._world, self._get_param("VolumeId"))
        volumes.authorize_taking(self._world, volume)
        self.error_on_dryrun()
        volumes.delete(self._world, volume)
        return EmptyResult()

    def error_on_dryrun(self) -> None:
        """Raises DryRunClientError for a request with DryRun; call it after all checks and before any change."""
        if self._get_param("DryRun", False):
            raise DryRunClientError()

    def _page(self, found: list[LabVolume], by_id: bool) -> tuple[list[LabVolume], str | None]:
        limit, token = self._get_param("MaxResults"), self._get_param("NextToken")
        if limit is None and token is None:
            return found, None
        if by_id:
            text = "The parameter volumeSet cannot be used with the parameter maxResults"
            raise ApiError("InvalidParameterCombination", text)
        size = _PAGE_MAX if limit is None else int(limit)
        if size < _PAGE_MIN:
            text = f"Value ( {size} ) for parameter maxResults is invalid. Expecting {_PAGE_MIN} or more."
            raise ApiError("InvalidParameterValue", text)
        last = -1 if token is None else _number_of(token)
        rest = [volume for volume in found if volume.number > last]
        page = rest[: min(size, _PAGE_MAX)]
        return page, _token_after(page[-1]) if len(rest) > len(page) else None


def _token_after(volume: LabVolume) -> str:
    return base64.urlsafe_b64encode(str(volume.number).encode()).decode()


def _number_of(token: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(token))
    except (binascii.Error, ValueError) as error:
        raise ApiError("InvalidNextToken", f"The token '{token}' is invalid.") from error
