"""The SDK's EC2 client, created on first use with trimmed data. The only module that calls AWS."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import boto3.session
import botocore.session
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

import elastio
from elastio_aws import slim
from elastio_aws.settings import METADATA_URL, Settings
from elastio_aws.translate import PARSE_ERRORS, SDK_ERRORS, translate

_log = logging.getLogger(__name__)


class Ec2:
    """Calls to EC2 in one region. Safe to use from several threads.

    A call takes at most the time-outs times the attempts of the settings, by default 3 x (3 s + 10 s), and the SDK's
    pauses between attempts.
    """

    def __init__(self, settings: Settings, region: str) -> None:
        self._settings = settings
        self._region = region
        self._lock = threading.Lock()
        self._client: Any = None

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """One operation by its name in the SDK (`create_volume`). Raises errors of `elastio.errors`."""
        name = operation.title().replace("_", "")
        try:
            response: dict[str, Any] = getattr(self.client(), operation)(**parameters)
        except (*SDK_ERRORS, *PARSE_ERRORS) as error:
            if isinstance(error, NoCredentialsError):
                # a client created before the instance's role was ready would never get credentials
                self.close()
            raise translate(name, error) from error
        return response

    def warm_up(self) -> None:
        """Create the client now. Raises errors of `elastio.errors`."""
        try:
            self.client()
        except SDK_ERRORS as error:
            raise translate("The SDK", error) from error

    def client(self) -> Any:
        """The SDK's client, created on first use. May raise the SDK's errors."""
        with self._lock:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def close(self) -> None:
        """Close the connections. The next call creates a new client."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def _new_client(self) -> Any:
        folder = slim.prepare(Path(self._settings.cache_dir)) if self._settings.cache_dir else None
        if folder is not None:
            try:
                return self._build_client(slim.SlimLoader(folder))
            except Exception as error:  # damaged data may fail in any way; the SDK's own data always work
                _log.warning("trimmed SDK data in %s are unusable (%r); the full data are used", folder, error)
        return self._build_client(None)

    def _build_client(self, loader: Any) -> Any:
        settings = self._settings
        session = botocore.session.Session()
        if loader is not None:
            session.register_component("data_loader", loader)
        if settings.metadata_url != METADATA_URL:
            session.set_config_variable("ec2_metadata_service_endpoint", settings.metadata_url)
        session.set_config_variable("metadata_service_timeout", 2)
        session.set_config_variable("metadata_service_num_attempts", 2)
        config = Config(
            retries={"mode": "standard", "total_max_attempts": settings.max_attempts},
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            max_pool_connections=2,
            user_agent_extra=f"elastio/{elastio.__version__}",
        )
        return boto3.session.Session(botocore_session=session).client(
            "ec2", region_name=self._region, endpoint_url=settings.endpoint_url or None, config=config
        )
