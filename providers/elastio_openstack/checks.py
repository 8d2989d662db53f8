"""Checks for `elastio doctor`, before money is spent: each passes or fails, and says what to do.

Only GET requests: OpenStack has no dry run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from elastio.core.model import VolumeSpec
from elastio.errors import AuthError, ElastioError, QuotaError, RefusedError
from elastio.units import GIB
from elastio_openstack.provider import OpenstackProvider

Check: TypeAlias = tuple[str, bool, str]
# The name of a check, and the sentence it passed with or the error it failed with.
Result: TypeAlias = tuple[str, str | ElastioError]

SMALLEST = VolumeSpec(size_bytes=GIB, bandwidth_mb_s=1.0)


def run(provider: OpenstackProvider, wanted: VolumeSpec = SMALLEST) -> list[Check]:
    """Name, whether it passed, and one sentence for each check. `wanted` is the largest volume the agent would buy.

    Does not raise errors of `elastio.errors`: they are the failures. If the first checks fail, those that could only
    fail for the same reason are left out.
    """
    found = results(provider, wanted)
    return [(name, not isinstance(result, ElastioError), str(result)) for name, result in found]


def results(provider: OpenstackProvider, wanted: VolumeSpec = SMALLEST) -> list[Result]:
    """The results of `run` with the errors themselves."""
    first = [
        _checked("OpenStack identity", provider, _identity),
        _checked("OpenStack credential", provider, _credential),
    ]
    if any(isinstance(result, ElastioError) for _, result in first):
        return first
    first.append(_checked("OpenStack server", provider, _server))
    return [
        *first,
        _checked("OpenStack volumes", provider, _volumes),
        _checked("OpenStack volume types", provider, lambda p: _types(p, wanted)),
        _checked("OpenStack quota", provider, lambda p: _quota(p, wanted)),
    ]


def _checked(name: str, provider: OpenstackProvider, check: Callable[[OpenstackProvider], str]) -> Result:
    try:
        return name, check(provider)
    except ElastioError as error:
        return name, error


def _identity(provider: OpenstackProvider) -> str:
    return f"This is the server {provider.who().server_id}."


def _credential(provider: OpenstackProvider) -> str:
    login = provider.cloud().login()
    roles = sorted(login["roles"])
    if not login["project"]:
        raise AuthError(
            f"Keystone accepts {login['user']}, but without a project; set this server's project in clouds.yaml, or "
            "use an application credential of that project.",
            code="credential.no-project",
        )
    if roles and set(roles) <= {"reader"}:
        text = "The credential has only the role reader, which cannot create volumes; use one with the role member."
        raise AuthError(text, code="credential.read-only")
    kind = (
        "an application credential"
        if login["application_credential"]
        else "a password; an application credential is safer"
    )
    broad = "; the role admin is not needed, leave it out" if "admin" in roles else ""
    return f"Keystone accepts {login['user']} for project {login['project']} with {', '.join(roles)} ({kind}{broad})."


def _server(provider: OpenstackProvider) -> str:
    me = provider.identify()
    return f"Nova knows the server: {me.instance_type or 'flavor unknown'} in {me.zone or 'an unnamed zone'}."


def _volumes(provider: OpenstackProvider) -> str:
    return f"Cinder responds; {len(provider.list_owned())} volume(s) have this server's metadata."


def _types(provider: OpenstackProvider, wanted: VolumeSpec) -> str:
    names = sorted(str(row["name"]) for row in provider.catalog.listed_types())
    strange = sorted(set(provider.settings.types) - set(names))
    if strange:
        raise RefusedError(
            f"Cinder lists no volume type {', '.join(strange)}, only {', '.join(names) or 'none'}; correct the name in "
            f"[provider.openstack.types.{strange[0]}].",
            code=f"provider.openstack.types.{strange[0]}",
        )
    quoted = provider.quote(wanted)
    if not quoted.price_known:
        raise RefusedError(
            f"{wanted.bandwidth_mb_s:.0f} MB/s are available, but {quoted.price_source}: set price_per_gib_hour in "
            "[provider.openstack.types.NAME]; with a cap in currency nothing is bought without it.",
            code="price.unknown",
        )
    price = f"{quoted.price_per_hour:.4f} {quoted.currency} per hour"
    return f"{wanted.bandwidth_mb_s:.0f} MB/s are within a type of {quoted.spec.bandwidth_mb_s:g} MB/s ({price})."


def _quota(provider: OpenstackProvider, wanted: VolumeSpec) -> str:
    limits = provider.catalog.limits()
    size_gib = -(-wanted.size_bytes // GIB)
    for quota, needed, used, most, unit in (
        ("volumes", 1, "totalVolumesUsed", "maxTotalVolumes", "volumes"),
        ("gigabytes", size_gib, "totalGigabytesUsed", "maxTotalVolumeGigabytes", "GiB"),
    ):
        taken, limit = limits.get(used, 0), limits.get(most, -1)
        if 0 <= limit < taken + needed:
            raise QuotaError(
                f"{taken} of {limit} {unit} are used and {needed} more would be bought; delete unused volumes or ask "
                "the cloud's operator for a larger quota.",
                code=f"quota.{quota}",
            )
    return f"The quota leaves room for {size_gib} GiB more."
