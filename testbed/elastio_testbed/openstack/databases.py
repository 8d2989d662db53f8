"""The databases of all services, created once for a root."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elastio_testbed.errors import LabError
from elastio_testbed.image.tools import ImageError, chroot, run
from elastio_testbed.openstack.configure import KEYSTONE_URL, REGION, password
from elastio_testbed.openstack.services import NEUTRON_FILES

_USERS = {
    "keystone": "keystone",
    "placement": "placement",
    "glance": "glance",
    "neutron": "neutron",
    "nova_api": "nova",
    "nova": "nova",
    "nova_cell0": "nova",
    "cinder": "cinder",
}
_TIMEOUT_S = 300.0


def create_databases(root: Path) -> None:
    """Create users and schemas. Idempotent. Raises LabError with the output of the failed program."""
    secret = password(root)
    statements = "".join(
        f"CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8;"
        f"GRANT ALL ON {name}.* TO '{user}'@'127.0.0.1' IDENTIFIED BY '{secret}';"
        for name, user in _USERS.items()
    )
    try:
        run(["chroot", str(root), "mysql"], timeout_s=_TIMEOUT_S, stdin=statements)
    except ImageError as error:
        raise LabError(f"the databases cannot be created: {error}") from error
    cell0 = f"mysql+pymysql://nova:{secret}@127.0.0.1/nova_cell0?charset=utf8"
    url = f"{KEYSTONE_URL}/"
    bootstrap = ["keystone-manage", "bootstrap", "--bootstrap-password", secret, "--bootstrap-region-id", REGION]
    bootstrap += [f"--bootstrap-{kind}-url={url}" for kind in ("admin", "internal", "public")]
    keystone_keys = ("--keystone-user", "root", "--keystone-group", "root")
    _run_in_parallel(
        root,
        [
            ["keystone-manage", "db_sync"],
            ["keystone-manage", "fernet_setup", *keystone_keys],
            ["keystone-manage", "credential_setup", *keystone_keys],
            bootstrap,
            ["placement-manage", "db", "sync"],
            ["glance-manage", "db_sync"],
            ["cinder-manage", "db", "sync"],
        ],
        [
            ["nova-manage", "api_db", "sync"],
            ["nova-manage", "cell_v2", "map_cell0", "--database_connection", cell0],
            [
                "sh",
                "-c",
                "nova-manage cell_v2 list_cells | grep -q cell1 || nova-manage cell_v2 create_cell --name=cell1",
            ],
            ["nova-manage", "db", "sync"],
            ["neutron-db-manage", *NEUTRON_FILES, "upgrade", "head"],
        ],
    )


def _run_in_parallel(root: Path, *lists: Sequence[Sequence[str]]) -> None:
    """Run each list in its order, and the lists in parallel: most of the time goes to importing Python modules."""

    def work(commands: Sequence[Sequence[str]]) -> None:
        for command in commands:
            chroot(root, command, timeout_s=_TIMEOUT_S)

    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(work, lists))
    except ImageError as error:
        raise LabError(f"the databases cannot be created: {error}") from error
