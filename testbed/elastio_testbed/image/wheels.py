"""The Python wheels a guest needs, collected on the host: the guest installs them without a network."""

import sys
import tomllib
from pathlib import Path

from elastio_testbed.image.cache import cached, digest_of
from elastio_testbed.image.tools import run

# Debian 12's interpreter, and the oldest C library its wheels may ask for.
_GUEST = ("--python-version=3.11", "--implementation=cp", "--platform=manylinux2014_x86_64", "--platform=any")
_PINS = Path("requirements/guest.txt")
_TIMEOUT_S = 600


def dependency_wheels(checkout: Path, cache: Path) -> Path:
    """Directory with a wheel for each run-time dependency: as pinned, or the newest without pins."""
    pins = checkout / _PINS
    wanted = ["-r", str(pins)] if pins.is_file() else _dependencies(checkout)
    entry = cache / f"wheels-{digest_of([*_GUEST, *wanted], [pins])}"

    def download(directory: Path) -> None:
        options = ["--dest", str(directory), "--only-binary=:all:", *_GUEST]
        _pip("download", *options, *wanted)

    return cached(entry, download)


def project_wheel(checkout: Path, directory: Path) -> None:
    """Build the checkout's own wheel into `directory`, with the build backend installed beside us."""
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(checkout))


def _dependencies(checkout: Path) -> list[str]:
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["aws"]]


def _pip(*arguments: str) -> None:
    run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], timeout_s=_TIMEOUT_S)
