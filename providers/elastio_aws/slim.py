"""A trimmed copy of the SDK's data: the nine operations that this package uses out of EC2's seven hundred.

The SDK loads the description of the whole service when a client is created: some 30 MB at the peak, and most of the
time it takes. A child process, whose memory is freed when it ends, makes the copy from the installed SDK. It is kept
per SDK version in a cache directory and searched before the SDK's own data. If anything fails, the full data are used.

`python -m elastio_aws.slim DIRECTORY` makes the copy ahead of time, for example in a machine image.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import botocore
from botocore.loaders import Loader

from elastio_aws.operations import OPERATIONS

# EC2, and the services that may provide credentials.
_ENDPOINTS = ("ec2", "sts", "oidc", "portal.sso", "signin")
_FORMAT = 4
_BUILD_TIMEOUT_S = 120.0
_log = logging.getLogger(__name__)


class SlimLoader(Loader):  # type: ignore[misc]  # the SDK has no types
    """The SDK's loader, with a directory that is searched first and counts as part of the SDK."""

    def __init__(self, folder: Path) -> None:
        super().__init__(extra_search_paths=[str(folder)])
        self._folder = str(folder)

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        """From the directory if it is there: the SDK would first list the directories of all services, twice."""
        found = next(Path(self._folder).glob(f"{service_name}/{api_version or '*'}/{type_name}.json"), None)
        if found is None:
            return super().load_service_model(service_name, type_name, api_version)
        return self.load_data(f"{service_name}/{found.parent.name}/{type_name}")

    def is_builtin_path(self, path: str) -> bool:
        """For endpoint data that are not built in, the SDK would not use its endpoint rules."""
        return path.startswith(self._folder) or bool(super().is_builtin_path(path))


def prepare(root: Path, timeout_s: float = _BUILD_TIMEOUT_S) -> Path | None:
    """The directory below `root` with the trimmed data of the installed SDK, made if missing; None if that fails.

    Takes at most `timeout_s`. Does not raise: without the directory the agent works, and needs more memory.
    """
    folder = folder_in(root)
    try:
        if not folder.is_dir():
            root.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "elastio_aws.slim", str(root)]
            # The child must find this package and the SDK, also if they are in a directory that only we search.
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            subprocess.run(
                command, check=True, timeout=timeout_s, capture_output=True, stdin=subprocess.DEVNULL, env=env
            )
        if not (_is_private(root) and _is_private(folder)):
            _log.warning("%s is writable by others and not used; the full SDK data are", root)
            return None
    except (OSError, subprocess.SubprocessError) as error:
        _log.info("no trimmed SDK data in %s (%s); the full SDK data are used", root, error)
        return None
    return folder


def folder_in(root: Path) -> Path:
    """The directory for the data of the installed SDK version."""
    return root / f"{botocore.__version__}-{_FORMAT}"


def build(root: Path) -> Path:
    """Make the directory, complete or not at all; an existing one is kept. Raises OSError."""
    folder = folder_in(root)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".making-") as work:
        made = Path(work) / "data"
        loader = Loader()
        version = loader.determine_latest_version("ec2", "service-2")
        service = made / "ec2" / version
        service.mkdir(parents=True)
        _write(service / "service-2.json", trimmed(loader.load_service_model("ec2", "service-2", version)))
        rules = loader.load_service_model("ec2", "endpoint-rule-set-1", version)
        _write(service / "endpoint-rule-set-1.json", rules)
        _write(made / "endpoints.json", _trimmed_endpoints(loader.load_data("endpoints")))
        made.chmod(0o755)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process has made it
                raise
    return folder


def trimmed(model: dict[str, Any], operations: Iterable[str] = OPERATIONS) -> dict[str, Any]:
    """The model with these operations and the shapes they refer to, without documentation and enumerations."""
    kept = {name: model["operations"][name] for name in operations}
    shapes = model["shapes"]
    open_names = [op[side]["shape"] for op in kept.values() for side in ("input", "output") if side in op]
    reached: set[str] = set()
    while open_names:
        name = open_names.pop()
        if name not in reached:
            reached.add(name)
            open_names += _referred(shapes[name])
    return {
        **{key: model[key] for key in model if key not in ("operations", "shapes", "documentation")},
        "operations": _undocumented(kept),
        "shapes": {name: _without_values(_undocumented(shapes[name])) for name in sorted(reached)},
    }


def _referred(shape: dict[str, Any]) -> list[str]:
    names = [member["shape"] for member in shape.get("members", {}).values()]
    return names + [shape[part]["shape"] for part in ("member", "key", "value") if part in shape]


def _without_values(shape: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shape.items() if key != "enum"}


def _undocumented(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: _undocumented(v) for k, v in node.items() if not (k == "documentation" and isinstance(v, str))}
    return [_undocumented(item) for item in node] if isinstance(node, list) else node


def _trimmed_endpoints(data: dict[str, Any]) -> dict[str, Any]:
    partitions = [
        {**partition, "services": {k: v for k, v in partition["services"].items() if k in _ENDPOINTS}}
        for partition in data["partitions"]
    ]
    return {**data, "partitions": partitions}


def _write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")


def _is_private(path: Path) -> bool:
    """Whether only root and this user can change it: the data determine where requests are sent."""
    status = path.stat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


if __name__ == "__main__":
    build(Path(sys.argv[1]))
