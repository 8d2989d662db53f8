"""The configuration of all services: the overlay's files, with the laboratory's password."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from string import Template

KEYSTONE_URL = "http://127.0.0.1:5000/v3"
REGION = "RegionOne"
_OVERLAY = Path(__file__).parent / "overlay"
_SECRET = Path("etc/lab.secret")
_TEMPLATES = {".conf", ".ini"}
_SERVICE_AUTH = f"""\
auth_url = {KEYSTONE_URL}
auth_type = password
username = $service
password = $password
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = {REGION}"""
_AUTHTOKEN = f"""\
{_SERVICE_AUTH}
www_authenticate_uri = {KEYSTONE_URL}
service_token_roles = service
service_token_roles_required = true
# By default a service caches a token for five minutes, and accepts a revoked one as long.
token_cache_time = 10"""
# The broker's built-in user, which may log in from loopback only.
_COMMON = """\
transport_url = rabbit://guest:guest@127.0.0.1:5672/
rpc_response_timeout = 120
log_dir =
use_stderr = true"""
_OSLO = """\
[oslo_concurrency]
lock_path = /var/lock/lab

[oslo_messaging_notifications]
driver = noop

[oslo_messaging_rabbit]
heartbeat_in_pthread = false"""
_FOLDERS = (
    "srv/slow",
    "srv/fast",
    "var/lib/nova/mnt",
    "var/lib/nova/instances",
    "var/lib/cinder/mnt",
    "var/lib/cinder/conversion",
    "var/lib/glance/images",
    "var/lib/lab",
    "var/log/lab",
)


def configure(root: Path) -> None:
    """Write all files of the overlay into `root` over those of Debian. Idempotent."""
    secret = password(root)
    for source in sorted(path for path in _OVERLAY.rglob("*") if path.is_file()):
        relative = source.relative_to(_OVERLAY)
        target = root / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in _TEMPLATES and relative.parts[1] != "libvirt":
            target.write_text(_filled(source.read_text(), relative.parts[1], secret))
        else:
            shutil.copyfile(source, target)
        target.chmod(0o755 if relative.parts[0] == "usr" else 0o644)
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "etc/hosts").write_text("127.0.0.1 localhost lab\n")
    helper = root / "usr/sbin/mount.nfs4"
    helper.unlink(missing_ok=True)
    helper.symlink_to("mount.nfs")


def password(root: Path) -> str:
    """The password of all users and databases, created on first use and readable by root only."""
    path = root / _SECRET
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(16))
    return path.read_text()


def _filled(text: str, service: str, secret: str) -> str:
    blocks = {"auth": _SERVICE_AUTH, "authtoken": _AUTHTOKEN, "common": _COMMON, "oslo": _OSLO}
    facts = {"service": service, "password": secret}
    filled = {name: Template(block).substitute(facts) for name, block in blocks.items()}
    return Template(text).substitute(facts | filled)
