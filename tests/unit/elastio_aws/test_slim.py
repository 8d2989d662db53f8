"""With the trimmed SDK data every call of the provider is the same as with the SDK's own data.

`slim` relies on how botocore loads and stores its data, which is not part of its public interface. If a new botocore
changes that, the agent still works with the full data, but needs 30 MB more: only these tests report it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore
import botocore.session
import pytest
from botocore import xform_name
from botocore.loaders import Loader

import elastio_aws
from elastio_aws import slim
from elastio_aws.operations import OPERATIONS

from .conftest import SDK_CHANGED, returns

PACKAGE = Path(elastio_aws.__file__).parent
REQUIREMENTS = Path(__file__).parents[3] / "requirements"
LOCKED = re.compile(r"^botocore==(\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(slim_root: Path) -> Path:
    return slim.folder_in(slim_root)


def open_client(loader: Loader | None) -> Any:
    session = botocore.session.Session()
    if loader is not None:
        session.register_component("data_loader", loader)
    return session.create_client("ec2", "eu-central-1", aws_access_key_id="k", aws_secret_access_key="s")


@pytest.fixture(scope="module")
def full() -> Iterator[Any]:
    client = open_client(None)
    yield client
    client.close()


@pytest.fixture(scope="module")
def trimmed(folder: Path) -> Iterator[Any]:
    try:
        client = open_client(slim.SlimLoader(folder))
    except Exception as error:  # whatever a changed SDK raises
        pytest.fail(f"{SDK_CHANGED} ({error!r})")
    assert sorted(client.meta.service_model.operation_names) == sorted(OPERATIONS), SDK_CHANGED
    yield client
    client.close()


def called_operations() -> set[str]:
    """The names of the SDK's methods that the package passes to `Ec2.call`, as EC2's operations."""
    names = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "call":
                names |= {str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return {name.title().replace("_", "") for name in names}


def sample(shape: Any, depth: int = 4) -> Any:
    """A value for every member of an input shape."""
    if shape.type_name == "structure":
        return {name: sample(member, depth - 1) for name, member in shape.members.items() if depth}
    if shape.type_name == "list":
        return [sample(shape.member, depth)]
    number = shape.metadata.get("min", 1)
    samples = {"integer": number, "long": number, "boolean": True, "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}
    return samples.get(shape.type_name, "text")


def request_of(client: Any, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The body that the client would send; nothing is sent."""
    requests = returns(client, operation, {})
    getattr(client, xform_name(operation))(**parameters)
    return requests[0]


def outline(shape: Any, above: tuple[str, ...] = ()) -> Any:
    """Names, types and wire names of everything below a shape."""
    if shape is None or shape.name in above:
        return None
    inside = (*above, shape.name)
    here = (shape.name, shape.type_name, shape.serialization, getattr(shape, "required_members", None))
    if shape.type_name == "structure":
        return here, {name: outline(member, inside) for name, member in shape.members.items()}
    return (here, outline(shape.member, inside)) if shape.type_name == "list" else here


def test_tested_sdk_is_the_one_of_the_agent() -> None:
    locked = {
        name: LOCKED.search((REQUIREMENTS / name).read_text(encoding="utf-8")) for name in ("dev.txt", "guest.txt")
    }
    assert {name: found and found[1] for name, found in locked.items()} == dict.fromkeys(locked, botocore.__version__)


def test_every_operation_of_the_provider_is_in_the_trimmed_data() -> None:
    # the doctor's dry runs pass the operation in a variable
    assert called_operations() | {"AttachVolume", "CreateVolume", "CreateTags"} == set(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_trimmed_operation_sends_and_reads_what_the_full_one_does(full: Any, trimmed: Any, operation: str) -> None:
    theirs = full.meta.service_model.operation_model(operation)
    ours = trimmed.meta.service_model.operation_model(operation)
    parameters = sample(theirs.input_shape)
    assert request_of(trimmed, operation, parameters) == request_of(full, operation, parameters), SDK_CHANGED
    assert outline(ours.output_shape) == outline(theirs.output_shape), SDK_CHANGED


def test_endpoint_and_signing_are_those_of_the_sdk(folder: Path, full: Any, trimmed: Any) -> None:
    assert trimmed.meta.endpoint_url == full.meta.endpoint_url == "https://ec2.eu-central-1.amazonaws.com", SDK_CHANGED
    assert trimmed.meta.partition == full.meta.partition, SDK_CHANGED
    assert slim.SlimLoader(folder).is_builtin_path(str(folder / "endpoints"))
    assert not slim.SlimLoader(folder).is_builtin_path("/elsewhere/endpoints")


def test_data_that_are_not_trimmed_come_from_the_sdk(folder: Path) -> None:
    loader = slim.SlimLoader(folder)
    assert "GetCallerIdentity" in loader.load_service_model("sts", "service-2")["operations"], SDK_CHANGED
    assert "DescribeVolumes" in loader.load_service_model("ec2", "paginators-1")["pagination"], SDK_CHANGED


def test_provider_uses_the_copy(provider: Any) -> None:
    assert not hasattr(provider.ec2().client(), "run_instances"), SDK_CHANGED


def test_copy_is_one_per_sdk_version_and_small(folder: Path) -> None:
    assert folder.name.startswith(f"{botocore.__version__}-")
    assert sum(path.stat().st_size for path in folder.rglob("*.json")) < 200_000


@pytest.mark.runs_programs
def test_prepare_makes_the_copy_in_a_child_process_once(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    made = slim.prepare(root)
    assert made == slim.folder_in(root)
    stamp = made.stat().st_ino
    assert [path.name for path in root.iterdir()] == [made.name]
    assert slim.prepare(root) == slim.build(root) == made
    assert made.stat().st_ino == stamp


@pytest.mark.runs_programs
def test_prepare_returns_none_where_it_cannot_write(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    assert slim.prepare(file / "cache") is None


def test_prepare_does_not_trust_what_others_can_write(tmp_path: Path) -> None:
    folder = slim.folder_in(tmp_path)
    folder.mkdir(mode=0o755)
    assert slim.prepare(tmp_path) == folder
    folder.chmod(0o777)
    assert slim.prepare(tmp_path) is None


@pytest.mark.parametrize("is_damaged", [True, False])
def test_without_a_sound_copy_the_full_data_are_used(open_aws: Any, tmp_path: Path, is_damaged: bool) -> None:
    if is_damaged:
        model = next(slim.build(tmp_path).glob("ec2/*/service-2.json"))
        model.write_text(json.dumps({})[:1], encoding="utf-8")
    provider = open_aws(cache_dir=str(tmp_path) if is_damaged else "")
    assert provider.list_owned() == ()
    assert hasattr(provider.ec2().client(), "run_instances")
