"""The root of a machine on user-mode Linux: the guest image's, with this kernel's modules and the laboratory's units.

`debugfs` writes into a copy of the image's file system: no privileges, no loop device, no boot.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from elastio_testbed.hypervisor.uml.kernel import Kernel
from elastio_testbed.image import GuestImage, ImageError
from elastio_testbed.image.cache import cache_directory, cached, digest_of, prune
from elastio_testbed.image.tools import run

OVERLAY = Path(__file__).parent / "overlay"
AGENT = Path(__file__).parents[2] / "guest/uml_agent.py"
AGENT_FOLDER = "/usr/lib/elastio-laboratory"
# About 750 MB each.
_KEPT = 4
_TIMEOUT_S = 300.0
_UNITS = "/etc/systemd/system"
_WANTED = {"sysinit.target.wants": "laboratory-agent.service", "multi-user.target.wants": "laboratory-ready.service"}
# What a kernel without firmware, console and hardware has no use for, and what delays the boot or disturbs
# measurements. The agent sets up the network.
_MASKED = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer"),
    *("e2scrub_all.timer", "e2scrub_reap.service", "ssh.service", "systemd-resolved.service"),
    *("getty@tty1.service", "getty-static.service", "serial-getty@ttyS0.service", "qemu-guest-agent.service"),
    *("dev-hugepages.mount", "dev-mqueue.mount", "proc-sys-fs-binfmt_misc.automount", "systemd-binfmt.service"),
    *(f"modprobe@{module}.service" for module in ("configfs", "dm_mod", "drm", "efi_pstore", "fuse", "loop")),
    *("sys-kernel-config.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "kmod-static-nodes.service"),
    *("systemd-network-generator.service", "systemd-networkd.service", "systemd-networkd.socket"),
    *("systemd-networkd-wait-online.service", "systemd-logind.service", "systemd-user-sessions.service"),
    *("systemd-pstore.service", "systemd-random-seed.service", "systemd-sysusers.service"),
    *("systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "systemd-tmpfiles-setup-dev.service"),
    *("systemd-ask-password-console.path", "systemd-ask-password-wall.path", "systemd-firstboot.service"),
    *("systemd-machine-id-commit.service", "systemd-repart.service"),
    *("systemd-pcrphase.service", "systemd-pcrphase-sysinit.service"),
    *("lvm2-monitor.service", "lvm2-lvmpolld.socket", "dm-event.socket", "blk-availability.service"),
)
# All generators of systemd but that for fstab.
_MASKED_GENERATORS = (
    "cloud-init-generator",
    *(f"systemd-{name}-generator" for name in ("cryptsetup", "debug", "getty", "gpt-auto", "hibernate-resume")),
    *(f"systemd-{name}-generator" for name in ("integritysetup", "rc-local", "run", "system-update", "sysv")),
    *(f"systemd-{name}-generator" for name in ("veritysetup",)),
)


def prepared_root(image: GuestImage, kernel: Kernel) -> Path:
    """The file system of the image for this kernel; it is made the first time. Raises ImageError."""
    cache = cache_directory()
    digest = digest_of([image.digest, kernel.entry], [OVERLAY, AGENT, Path(__file__)])
    folder = cached(cache / f"uml-root-{digest}", lambda unfinished: _prepare(unfinished, image, kernel))
    prune(cache, "uml-root-*", keep=_KEPT)
    return folder / "root.ext4"


def _prepare(folder: Path, image: GuestImage, kernel: Kernel) -> None:
    root = folder / "root.ext4"
    run(["cp", "--sparse=always", "--reflink=auto", str(image.root), str(root)], timeout_s=_TIMEOUT_S)
    made: set[str] = set()
    commands = [
        *_tree(kernel.modules, f"/usr/lib/modules/{kernel.modules.name}", made),
        *_tree(OVERLAY, "", made),
        *_folders(AGENT_FOLDER, made),
        f"write {AGENT} {AGENT_FOLDER}/{AGENT.name}",
        *_links(made),
    ]
    _debugfs(root, commands)


def _tree(source: Path, target: str, made: set[str]) -> Iterator[str]:
    for path in sorted(source.rglob("*")):
        if path.is_file():
            place = f"{target}/{path.relative_to(source)}"
            yield from _folders(place.rpartition("/")[0], made)
            yield f"write {path} {place}"
            yield f"set_inode_field {place} mode 0100644"


def _links(made: set[str]) -> Iterator[str]:
    for unit in _MASKED:
        yield f"symlink {_UNITS}/{unit} /dev/null"
    yield from _folders("/etc/systemd/system-generators", made)
    for generator in _MASKED_GENERATORS:
        yield f"symlink /etc/systemd/system-generators/{generator} /dev/null"
    for target, unit in _WANTED.items():
        yield from _folders(f"{_UNITS}/{target}", made)
        yield f"symlink {_UNITS}/{target}/{unit} ../{unit}"


def _folders(path: str, made: set[str]) -> Iterator[str]:
    """Create a folder and those above it, each once. Those that the image has already are refused, which is right."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:depth])
        if folder not in made:
            made.add(folder)
            yield f"mkdir {folder}"


def _debugfs(root: Path, commands: Sequence[str]) -> None:
    """Carry out commands. Raises ImageError for a refused one, except a folder or link that is there already."""
    done = subprocess.run(
        ["debugfs", "-w", "-f", "-", str(root)],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    refused = [line for line in done.stderr.splitlines()[1:] if "already exists" not in line]
    if done.returncode or refused:
        raise ImageError(f"debugfs: {'; '.join(refused[:5]) or done.stdout[-500:]}")
