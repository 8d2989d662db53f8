"""The Debian package of a checkout: what it depends on, and how it gets into a Debian root."""

import re
import shutil
import tempfile
from pathlib import Path

from elastio_testbed.image.tools import ImageError, chroot, run

# Empty caches of wheels included.
_BUILD_S = 900
_INSTALL_S = 300


def dependencies(checkout: Path) -> list[str]:
    """Names of Debian packages that the package depends on, in the order of debian/control; without substitutions."""
    text = (checkout / "debian/control").read_text().partition("\nDepends: ")[2].partition("\nSuggests: ")[0]
    names = [entry.split()[0].partition(":")[0] for entry in text.replace(",", "\n").splitlines() if entry.strip()]
    return [name for name in names if not name.startswith("$")]


def install_package(root: Path, package: Path) -> None:
    """Install the package in the Debian root, which has its dependencies.

    Raises ImageError with the end of the failed program's output.
    """
    with tempfile.TemporaryDirectory(prefix="package-", dir=root / "root") as staging:
        deb = Path(shutil.copy(package, staging))
        # Not apt: what is missing has to be an error, not a download.
        chroot(root, ["dpkg", "--install", "/" + str(deb.relative_to(root))], timeout_s=_INSTALL_S)


def build_package(checkout: Path, folder: Path) -> Path:
    """Build the package of the checkout in the folder, and return it. Raises ImageError."""
    run([str(checkout / "debian/build"), str(folder)], timeout_s=_BUILD_S)
    (deb,) = folder.glob("*.deb")
    return deb


def as_release(deb: Path, version: str, folder: Path) -> Path:
    """The same package with another version, which its programs report too, in the folder. Raises ImageError.

    It stands for an earlier release where none can be built: only what is on disk and runs can be told apart.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unpacked, made = folder / "unpacked", folder / f"elastio_{version}_all.deb"
    run(["dpkg-deb", "--raw-extract", str(deb), str(unpacked)], timeout_s=_INSTALL_S)
    _replace(unpacked / "DEBIAN/control", r"^Version: .*$", f"Version: {version}-1")
    _replace(unpacked / "usr/share/elastio/elastio/__init__.py", r'^__version__ = ".*"$', f'__version__ = "{version}"')
    run(["dpkg-deb", "--root-owner-group", "--build", str(unpacked), str(made)], timeout_s=_INSTALL_S)
    return made


def _replace(path: Path, pattern: str, text: str) -> None:
    """Raises ImageError if not exactly one line matches."""
    changed, count = re.subn(pattern, text, path.read_text(), flags=re.MULTILINE)
    if count != 1:
        raise ImageError(f"{path.name} has {count} lines like {pattern}, not one")
    path.write_text(changed)
