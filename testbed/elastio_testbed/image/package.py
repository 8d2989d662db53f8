"""The Debian package of a checkout: what it depends on, and how it gets into a Debian root."""

import tempfile
from pathlib import Path

from elastio_testbed.image.tools import chroot, run

# Empty caches of wheels included.
_BUILD_S = 900
_INSTALL_S = 300


def dependencies(checkout: Path) -> list[str]:
    """Names of Debian packages that the package depends on, in the order of debian/control; without substitutions."""
    text = (checkout / "debian/control").read_text().partition("\nDepends: ")[2].partition("\nSuggests: ")[0]
    names = [entry.split()[0].partition(":")[0] for entry in text.replace(",", "\n").splitlines() if entry.strip()]
    return [name for name in names if not name.startswith("$")]


def install_package(root: Path, checkout: Path) -> None:
    """Build the package and install it in the Debian root, which has its dependencies.

    Raises ImageError with the end of the failed program's output.
    """
    with tempfile.TemporaryDirectory(prefix="package-", dir=root / "root") as staging:
        run([str(checkout / "debian/build"), staging], timeout_s=_BUILD_S)
        (deb,) = Path(staging).glob("*.deb")
        # Not apt: what is missing has to be an error, not a download.
        chroot(root, ["dpkg", "--install", "/" + str(deb.relative_to(root))], timeout_s=_INSTALL_S)
