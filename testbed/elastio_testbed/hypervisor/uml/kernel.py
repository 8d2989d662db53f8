"""The kernel of user-mode Linux, with its modules and the program of its network, from Debian's packages.

They are unpacked, not installed, each with the C library of its own release: so the kernel of every suite runs on any
host. Started through that library's loader it would fail, as it looks at its own addresses; so the loader's path is
written into it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from elastio_testbed.image.cache import cached, digest_of
from elastio_testbed.image.tools import ImageError, run

# libeatmydata: an fsync of the guest's root ends in the host's page cache, as with QEMU's `no-flush`.
PACKAGES = ("user-mode-linux", "libc6", "slirp", "libeatmydata1")
# What the kernel lacks on processors with AMX, in C; its head says why.
_XSTATE = Path(__file__).with_name("xstate.c")
_RECIPE = 2
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """`linux` and `slirp` are programs, `preload` libraries for the kernel, `modules` the folder of the release."""

    linux: Path
    slirp: Path
    preload: tuple[Path, ...]
    modules: Path

    @property
    def entry(self) -> str:
        """What identifies it: suite and digest."""
        return self.linux.parent.name


def uml_kernel(cache: Path, suite: str) -> Kernel:
    """The kernel of a release of Debian; the first time it is fetched, which needs the network. Raises ImageError."""
    # The paths of libraries are absolute in the programs.
    recipe = [str(_RECIPE), str(cache.resolve()), _XSTATE.read_text(), *PACKAGES]
    entry = cache.resolve() / f"uml-{suite}-{digest_of(recipe)}"
    folder = cached(entry, lambda unfinished: _unpack(unfinished, entry, suite))
    (modules,) = (folder / "modules").iterdir()
    preload = (folder / "lib/libeatmydata.so.1", folder / "lib/xstate.so")
    return Kernel(folder / "linux", folder / "slirp", preload, modules)


def _unpack(folder: Path, entry: Path, suite: str) -> None:
    root = folder / "root"
    include = f"--include={','.join(PACKAGES)}"
    run(["mmdebstrap", "--variant=extract", include, suite, str(root)], timeout_s=_TIMEOUT_S)
    shutil.move(root / "usr/lib/uml/modules", folder / "modules")
    shutil.copytree(_library(root), folder / "lib", ignore=shutil.ignore_patterns("gconv", "perl*", "*.a"))
    loader = ["--set-interpreter", str(entry / "lib/ld-linux-x86-64.so.2"), "--set-rpath", str(entry / "lib")]
    for program, name in (("linux.uml", "linux"), ("slirp-fullbolt", "slirp")):
        shutil.copy(root / "usr/bin" / program, folder / name)
        run(["patchelf", *loader, str(folder / name)], timeout_s=_TIMEOUT_S)
    compile_xstate(folder / "lib/xstate.so")
    shutil.rmtree(root)


def compile_xstate(library: Path) -> None:
    """Raises ImageError."""
    run(
        ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(_XSTATE)],
        timeout_s=60,
    )


def _library(root: Path) -> Path:
    """The unpacked folder of libraries, which holds all of them: packages of Debian 12 use /lib and /usr/lib."""
    merged = root / "usr/lib/x86_64-linux-gnu"
    split = root / "lib/x86_64-linux-gnu"
    if not split.is_symlink() and split.is_dir() and not (root / "lib").is_symlink():
        shutil.copytree(split, merged, dirs_exist_ok=True)
    if not (merged / "libc.so.6").exists():
        raise ImageError(f"the packages of the kernel have no C library in {merged}")
    return merged
