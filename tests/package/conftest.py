"""A Debian system in a folder, in which the package of out/deb is installed; made once for each release."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elastio_testbed.image.cache import cache_directory, cached, digest_of
from elastio_testbed.image.debian import SUITES
from elastio_testbed.image.package import dependencies
from elastio_testbed.image.tools import ImageError, chroot, run

ROOT = Path(__file__).parents[2]
BUILD_S, PROGRAM_S = 1800, 120
DEB = "/root/elastio.deb"
# Written by dpkg, by the programs that maintain users, and by whatever runs.
NOISE = re.compile(r"/(dev|proc|sys|tmp|root|var/lib/dpkg|var/log|var/cache/ldconfig|etc/\.pwd\.lock)(/|$)")
BACKUPS = {"/etc/group-", "/etc/gshadow-", "/etc/gshadow", "/etc/passwd-", "/etc/shadow-", "/etc/subgid-"}


@dataclass(frozen=True)
class System:
    root: Path

    def run(self, *argv: str) -> str:
        """The standard output. Raises ImageError if the program fails."""
        return chroot(self.root, argv, timeout_s=PROGRAM_S)

    def fails(self, *argv: str) -> str:
        """The output of a program that has to fail."""
        with pytest.raises(ImageError) as caught:
            self.run(*argv)
        return str(caught.value)

    def names(self) -> set[str]:
        """All files and directories of the system, except those that change by themselves."""
        found: set[str] = set()
        for top, folders, files in os.walk(self.root):
            place = "/" / Path(top).relative_to(self.root)
            folders[:] = [name for name in folders if not NOISE.match(str(place / name))]  # processes end under a walk
            found |= {str(place / name) for name in (*folders, *files)}
        return {name for name in found if not NOISE.match(name)} - BACKUPS

    def groups(self) -> set[str]:
        return {line.partition(":")[0] for line in (self.root / "etc/group").read_text().splitlines()}

    def install(self) -> None:
        """With dpkg: what the package depends on is there, and nothing else is."""
        self.run("dpkg", "--install", DEB)

    def is_installed(self) -> bool:
        status = self.run("sh", "-c", "dpkg-query -W -f '${db:Status-Status}' elastio 2>/dev/null || true")
        return status == "installed"


def built() -> Path:
    """The package that `make deb` built."""
    found = list((ROOT / "out/deb").glob("*.deb"))
    assert len(found) == 1, "run make deb first"
    return found[0]


def debian(suite: str) -> Path:
    """A tar file: the smallest Debian with what the package depends on."""
    options = ["--variant=minbase", f"--include={','.join(dependencies(ROOT))}"]
    entry = cache_directory() / f"package-{suite}-{digest_of(options)}"
    made = cached(entry, lambda folder: _bootstrap(options, suite, folder / "root.tar"))
    return made / "root.tar"


def _bootstrap(options: list[str], suite: str, tar: Path) -> None:
    run(["mmdebstrap", *options, suite, str(tar)], timeout_s=BUILD_S)


@pytest.fixture(scope="module", params=SUITES)
def bare(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, runs_programs: None
) -> Iterator[System]:
    """Without the package, whose file is in it; /proc is mounted, and no service can be started."""
    root = tmp_path_factory.mktemp(request.param)
    run(["tar", "--extract", "--file", str(debian(request.param)), "--directory", str(root)], timeout_s=BUILD_S)
    shutil.copy(built(), root / DEB.lstrip("/"))
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    run(["mount", "-t", "proc", "proc", str(root / "proc")], timeout_s=PROGRAM_S)
    try:
        yield System(root)
    finally:
        run(["umount", str(root / "proc")], timeout_s=PROGRAM_S)
        shutil.rmtree(root)


@pytest.fixture
def system(bare: System) -> Iterator[System]:
    """With the package installed, and purged afterwards."""
    bare.install()
    yield bare
    shutil.rmtree(bare.root / "var/lib/elastio", ignore_errors=True)
    bare.run("dpkg", "--purge", "elastio")
    shutil.rmtree(bare.root / "etc/elastio", ignore_errors=True)
