"""The root directory of the laboratory's OpenStack, with Debian packages.

Debian 12 ships the 2022.2 ("Zed") release: keystone 22, placement 8, glance 25, neutron 21, nova 26, cinder 21.
"""

from __future__ import annotations

from pathlib import Path

from elastio_testbed.image.cache import cached, digest_of
from elastio_testbed.image.tools import chroot, run

SUITE = "bookworm"
BASE = ("ca-certificates", "procps", "iproute2", "netbase", "e2fsprogs", "util-linux", "python3")
SERVICES = (
    "mariadb-server",
    "python3-pymysql",
    "rabbitmq-server",
    "keystone",
    "uwsgi-core",
    "uwsgi-plugin-python3",
    "placement-api",
    "glance-api",
    # Nova asks Neutron about every server, even without a network: the API is needed, the agents are not.
    "neutron-api",
    "neutron-rpc-server",
    "nova-api",
    "nova-conductor",
    "nova-scheduler",
    # Not nova-compute-qemu: it depends on the emulators of 34 architectures, and libvirt probes each one at its start.
    "nova-compute-kvm",
    "genisoimage",  # makes the config drive; nova only recommends it
    "cinder-api",
    "cinder-scheduler",
    "cinder-volume",
    "libvirt-daemon-system",
    "libvirt-clients",
    "qemu-system-x86",
    "qemu-utils",
)
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
# Debian's packages offer to set up databases and endpoints; `databases` and `bootstrap` do it here.
_REFUSED_QUESTIONS = (
    "keystone keystone/configure_db",
    "keystone keystone/create-admin-tenant",
    "keystone keystone/register-endpoint",
    "glance-common glance/configure_db",
    "glance-api glance/register-endpoint",
    "placement-common placement/configure_db",
    "placement-api placement/register-endpoint",
    "nova-common nova/configure_db",
    "nova-api nova/register-endpoint",
    "cinder-common cinder/configure_db",
    "cinder-api cinder/register-endpoint",
    "neutron-common neutron/configure_db",
    "neutron-api neutron/register-endpoint",
)
# Keeps the maintainer scripts of packages from starting daemons.
_NO_DAEMONS = 'printf "#!/bin/sh\\nexit 101\\n" > "$1/usr/sbin/policy-rc.d" && chmod 755 "$1/usr/sbin/policy-rc.d"'
_EMULATOR = "/usr/bin/qemu-system-x86_64"
_DIVERT = f"dpkg-divert --local --rename --divert {_EMULATOR}.real --add {_EMULATOR}"
# Increment this when the steps below change and the lists do not.
_RECIPE = 1
_TIMEOUT_S = 3600


def packages_root(cache: Path) -> Path:
    """The directory of the installed root, created if the cache has none; needs root, and the network once.

    The directory later holds databases and volumes, too.
    """
    return cached(cache / f"openstack-{_digest()}", _install) / "root"


def existing_root(cache: Path) -> Path | None:
    """The directory of the installed root, or None."""
    root = cache / f"openstack-{_digest()}" / "root"
    return root if root.is_dir() else None


def _digest() -> str:
    return digest_of([SUITE, str(_RECIPE), *BASE, *SERVICES, *_REFUSED_QUESTIONS, *_EXCLUDED, _NO_DAEMONS, _DIVERT])


def _install(directory: Path) -> None:
    root = directory / "root"
    answers = "\n".join(f"{question} boolean false" for question in _REFUSED_QUESTIONS)
    preseed = directory / "answers"
    preseed.write_text(answers + "\n")
    argv = [
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--components=main"),
        f"--include={','.join((*BASE, *SERVICES))}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED),
        f"--essential-hook={_NO_DAEMONS}",
        f'--essential-hook=chroot "$1" debconf-set-selections < {preseed}',
        *(SUITE, str(root)),
    ]
    run(argv, timeout_s=_TIMEOUT_S)
    chroot(root, _DIVERT.split(), timeout_s=60)
