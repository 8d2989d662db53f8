from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore
import botocore.session
import pytest
from botocore.loaders import Loader

from elastio_aws import slim


@pytest.fixture
def folder(slim_root: Path) -> Path:
    return slim.folder_in(slim_root)


def _client(loader: Loader | None) -> Any:
    session = botocore.session.Session()
    if loader is not None:
        session.register_component("data_loader", loader)
    return session.create_client("ec2", "eu-central-1", aws_access_key_id="k", aws_secret_access_key="s")


def test_folder_is_one_per_sdk_version(tmp_path: Path) -> None:
    assert slim.folder_in(tmp_path).name.startswith(f"{botocore.__version__}-")


def test_copy_holds_our_operations_only_and_is_small(folder: Path) -> None:
    model = json.loads(next(folder.glob("ec2/*/service-2.json")).read_text(encoding="utf-8"))
    assert sorted(model["operations"]) == sorted(slim.OPERATIONS)
    assert sum(path.stat().st_size for path in folder.rglob("*.json")) < 200_000


@pytest.mark.parametrize("operation", slim.OPERATIONS)
def test_trimmed_operation_is_that_of_the_sdk(folder: Path, operation: str) -> None:
    whole = _client(None)
    small = _client(slim.SlimLoader(folder))
    theirs = whole.meta.service_model.operation_model(operation)
    ours = small.meta.service_model.operation_model(operation)
    assert _outline(ours.input_shape) == _outline(theirs.input_shape)
    assert _outline(ours.output_shape) == _outline(theirs.output_shape)
    whole.close()
    small.close()


def _outline(shape: Any, above: tuple[str, ...] = ()) -> Any:
    """Names, types and wire names of everything below a shape."""
    if shape is None or shape.name in above:
        return None
    inside = (*above, shape.name)
    here = (shape.name, shape.type_name, shape.serialization, getattr(shape, "required_members", None))
    if shape.type_name == "structure":
        return here, {name: _outline(member, inside) for name, member in shape.members.items()}
    return (here, _outline(shape.member, inside)) if shape.type_name == "list" else here


def test_endpoint_and_signing_are_those_of_the_sdk(folder: Path) -> None:
    whole = _client(None)
    small = _client(slim.SlimLoader(folder))
    assert small.meta.endpoint_url == whole.meta.endpoint_url == "https://ec2.eu-central-1.amazonaws.com"
    assert small.meta.partition == whole.meta.partition
    assert slim.SlimLoader(folder).is_builtin_path(str(folder / "endpoints"))
    assert not slim.SlimLoader(folder).is_builtin_path("/elsewhere/endpoints")
    whole.close()
    small.close()


def test_what_the_copy_lacks_comes_from_the_sdk(folder: Path) -> None:
    loader = slim.SlimLoader(folder)
    assert "GetCallerIdentity" in loader.load_service_model("sts", "service-2")["operations"]
    assert "DescribeVolumes" in loader.load_service_model("ec2", "paginators-1")["pagination"]
    assert sorted(loader.load_service_model("ec2", "service-2")["operations"]) == sorted(slim.OPERATIONS)


@pytest.mark.runs_programs
def test_prepare_makes_the_copy_in_a_child_process_once(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    made = slim.prepare(root)
    assert made == slim.folder_in(root)
    stamp = made.stat().st_ino
    assert [path.name for path in root.iterdir()] == [made.name]
    assert slim.prepare(root) == made
    assert made.stat().st_ino == stamp


def test_build_keeps_a_copy_that_is_there(tmp_path: Path) -> None:
    slim.build(tmp_path)
    stamp = slim.folder_in(tmp_path).stat().st_ino
    assert slim.build(tmp_path).stat().st_ino == stamp
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.runs_programs
def test_prepare_gives_nothing_where_it_cannot_write(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    assert slim.prepare(file / "cache") is None


def test_prepare_does_not_trust_what_others_can_write(tmp_path: Path) -> None:
    folder = slim.folder_in(tmp_path)
    folder.mkdir(mode=0o755)
    assert slim.prepare(tmp_path) == folder
    folder.chmod(0o777)
    assert slim.prepare(tmp_path) is None


def test_damaged_copy_falls_back_to_the_full_data(open_aws: Any, tmp_path: Path) -> None:
    slim.build(tmp_path)
    model = next(slim.folder_in(tmp_path).glob("ec2/*/service-2.json"))
    model.write_text("{broken", encoding="utf-8")
    provider = open_aws(cache_dir=str(tmp_path))
    assert provider.list_owned() == ()
    assert hasattr(provider.ec2().client(), "run_instances")


def test_provider_uses_the_copy(open_aws: Any) -> None:
    assert not hasattr(open_aws().ec2().client(), "run_instances")


def test_provider_works_without_a_cache(open_aws: Any) -> None:
    provider = open_aws(cache_dir="")
    assert provider.list_owned() == ()
    assert hasattr(provider.ec2().client(), "run_instances")
