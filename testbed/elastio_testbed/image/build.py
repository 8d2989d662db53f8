"""Layer 2: elastio installed on the Debian root, as a file system image with its kernel and initramfs."""

import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from elastio_testbed.image.cache import cache_directory, cached, digest_of, prune
from elastio_testbed.image.debian import chosen_suite, debian_root
from elastio_testbed.image.install import install
from elastio_testbed.image.package import build_package, dependencies
from elastio_testbed.image.tools import chroot, run

ROOT_LABEL = "elastio-root"
# The file is sparse: only written blocks take space.
_ROOT_SIZE = "4G"
# Each change of the checkout creates another image of about 600 MB, or 950 MB with the tools.
_KEPT_IMAGES = 8
_KEPT_PACKAGES = 3
_CHECKOUT = Path(__file__).resolve().parents[3]
# What the package is built from, except its documents.
_SOURCES = (
    *("elastio", "cli", "providers", "simulator", "adviser", "calibration", "systemd", "monitoring", "debian"),
    *("requirements/guest.txt", "requirements/deb.txt", "pyproject.toml"),
)
_BUILDER = Path(__file__).parent
_TIMEOUT_S = 300
_GRUB_MODULES = ("part_gpt", "ext2", "search", "search_label", "normal", "configfile", "linux", "echo", "all_video")
_GRUB_EARLY = "search --no-floppy --label elastio-root --set root\nset prefix=($root)/boot/grub\n"


@dataclass(frozen=True)
class GuestImage:
    """The files of a built image in the cache. All machines share them: never write to them.

    `root` is a raw ext4 file system labelled ROOT_LABEL, without a partition table; `kernel` and `initrd` boot it
    directly. `bootloader` is the UEFI program that boots it from a disk. `digest` identifies the contents, and `suite`
    is the release of Debian.
    """

    root: Path
    kernel: Path
    initrd: Path
    bootloader: Path
    digest: str
    suite: str


def build_guest_image(*, extra: Sequence[str] = (), suite: str | None = None) -> GuestImage:
    """Return the image of this checkout; missing layers are built, which needs root, and the network once.

    `suite`: the release of Debian, else that of $ELASTIO_SUITE, else Debian 12. `extra`: Debian packages that a
    larger image has besides, such as TOOLS. Raises ImageError; the cache then keeps the finished layers only.
    """
    cache = cache_directory()
    release = chosen_suite(suite)
    with ThreadPoolExecutor(1) as beside:
        # The one waits for the network, the other computes.
        package = beside.submit(checkout_package)
        debian = debian_root(cache, release, (*dependencies(_CHECKOUT), *extra))
        deb = package.result()
    digest = digest_of([debian.parent.name, deb.parent.name, _ROOT_SIZE], [_BUILDER])
    entry = cache / f"guest-{release}-{digest}"
    directory = cached(entry, lambda unfinished: _build(unfinished, debian, deb, cache))
    prune(cache, "guest-*", keep=_KEPT_IMAGES)
    return GuestImage(
        root=directory / "root.ext4",
        kernel=directory / "vmlinuz",
        initrd=directory / "initrd.img",
        bootloader=directory / "bootx64.efi",
        digest=digest,
        suite=release,
    )


def checkout_package() -> Path:
    """The Debian package of this checkout; if the cache has none, it is built, which needs the network.

    Raises ImageError.
    """
    cache = cache_directory()
    entry = cache / f"deb-{digest_of(trees=[_CHECKOUT / name for name in _SOURCES])}"
    (package,) = cached(entry, _build_package).glob("*.deb")
    prune(cache, "deb-*", keep=_KEPT_PACKAGES)
    return package


def _build_package(directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="elastio-deb-", dir=directory.parent) as work:
        shutil.move(build_package(_CHECKOUT, Path(work)), directory)


def _build(directory: Path, debian: Path, package: Path, cache: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="elastio-root-", dir=cache) as unpacked:
        root = Path(unpacked)
        root.chmod(0o755)
        unpack = ["tar", "--extract", "--numeric-owner", "--file", str(debian), "--directory", unpacked]
        run(unpack, timeout_s=_TIMEOUT_S)
        install(root, package)
        shutil.copyfile(root / "vmlinuz", directory / "vmlinuz")
        shutil.copyfile(root / "initrd.img", directory / "initrd.img")
        make_bootloader(root, directory / "bootx64.efi")
        make_filesystem(root, directory / "root.ext4")


def make_bootloader(root: Path, target: Path) -> None:
    """Write a UEFI program of the root's GRUB to `target`; it reads /boot/grub/grub.cfg."""
    early, program = root / "tmp/early.cfg", root / "tmp/grub.efi"
    early.write_text(_GRUB_EARLY)
    options = ["--format", "x86_64-efi", "--config", "/tmp/early.cfg", "--output", "/tmp/grub.efi"]
    chroot(root, ["grub-mkimage", *options, "--prefix", "/boot/grub", *_GRUB_MODULES], timeout_s=_TIMEOUT_S)
    shutil.move(program, target)
    early.unlink()


def make_filesystem(root: Path, image: Path) -> None:
    """Write the tree `root` as an ext4 file system labelled ROOT_LABEL into the new file `image`."""
    # Lazy initialization at first boot would disturb measurements; a new file contains only zeroes.
    options = ["-E", "lazy_itable_init=0,lazy_journal_init=0,assume_storage_prezeroed=1"]
    argv = ["mke2fs", "-q", "-t", "ext4", "-L", ROOT_LABEL, *options, "-d", str(root), str(image), _ROOT_SIZE]
    run(argv, timeout_s=_TIMEOUT_S)
