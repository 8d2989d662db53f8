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

# Never repeated by the SDK: the refusal of a repeat would hide that the first one, whose answer was lost, has bought
# a volume. The agent repeats it itself, and knows then that a purchase is unconfirmed.
ONCE = frozenset({"create_volume"})
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
        self._clients: dict[int, Any] = {}  # by the attempts of a call

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """One operation by its name in the SDK (`create_volume`). Raises errors of `elastio.errors`."""
        name = operation.title().replace("_", "")
        try:
            client = self.client(1 if operation in ONCE else None)
            response: dict[str, Any] = getattr(client, operation)(**parameters)
        except (*SDK_ERRORS, *PARSE_ERRORS) as error:
            if isinstance(error, NoCredentialsError):
                # a client created before the instance's role was ready would never get credentials
                self.close()
            raise translate(name, error) from error
        return response

    def warm_up(self) -> None:
        """Create the clients now. Raises errors of `elastio.errors`."""
        try:
            self.client()
            self.client(1)
        except SDK_ERRORS as error:
            raise translate("The SDK", error) from error

    def client(self, attempts: int | None = None) -> Any:
        """The SDK's client with so many attempts a call, created on first use. May raise the SDK's errors."""
        attempts = attempts or self._settings.max_attempts
        with self._lock:
            if attempts not in self._clients:
                self._clients[attempts] = self._new_client(attempts)
            return self._clients[attempts]

    def close(self) -> None:
        """Close the connections. The next call creates a new client."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _new_client(self, attempts: int) -> Any:
        folder = slim.prepare(Path(self._settings.cache_dir)) if self._settings.cache_dir else None
        if folder is not None:
            try:
                return self._build_client(attempts, slim.SlimLoader(folder))
            except Exception as error:  # damaged data may fail in any way; the SDK's own data always work
                _log.warning("trimmed SDK data in %s are unusable (%r); the full data are used", folder, error)
        return self._build_client(attempts, None)

    def _build_client(self, attempts: int, loader: Any) -> Any:
        settings = self._settings
        session = botocore.session.Session()
        if loader is not None:
            session.register_component("data_loader", loader)
        if settings.metadata_url != METADATA_URL:
            session.set_config_variable("ec2_metadata_service_endpoint", settings.metadata_url)
        session.set_config_variable("metadata_service_timeout", 2)
        session.set_config_variable("metadata_service_num_attempts", 2)
        config = Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            max_pool_connections=2,
            user_agent_extra=f"elastio/{elastio.__version__}",
        )
        return boto3.session.Session(botocore_session=session).client(
            "ec2", region_name=self._region, endpoint_url=settings.endpoint_url or None, config=config
        )
