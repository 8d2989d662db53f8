"""The Python wheels of a guest, downloaded on the host: the guest installs them without a network."""

import sys
from pathlib import Path

from elastio_testbed.image.cache import cached, digest_of
from elastio_testbed.image.debian import Suite
from elastio_testbed.image.tools import run

# The oldest C library that a guest's wheels may need.
_GUEST = ("--implementation=cp", "--platform=manylinux2014_x86_64", "--platform=any")
_PINS = Path("requirements/guest.txt")
_TIMEOUT_S = 600


def dependency_wheels(checkout: Path, cache: Path, suite: Suite) -> Path:
    """A directory with a wheel for each pinned run-time dependency.

    The pins are resolved for the oldest Python; newer ones need no others.
    """
    pins = checkout / _PINS
    wanted = ["-r", str(pins)]
    guest = (f"--python-version={suite.python}", *_GUEST)
    entry = cache / f"wheels-{suite.name}-{digest_of([*guest, *wanted], [pins])}"

    def download(directory: Path) -> None:
        options = ["--dest", str(directory), "--only-binary=:all:", *guest]
        _pip("download", *options, *wanted)

    return cached(entry, download)


def project_wheel(checkout: Path, directory: Path) -> None:
    """Build the checkout's own wheel in `directory`, with the installed build backend."""
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(checkout))


def _pip(*arguments: str) -> None:
    run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], timeout_s=_TIMEOUT_S)
