"""What can be checked before money is spent, for `elastio doctor`: each with a verdict and a way out.

Only GET requests are made: OpenStack has no dry run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from elastio.core.model import VolumeSpec
from elastio.errors import AuthError, ElastioError, QuotaError, RefusedError
from elastio.units import GIB
from elastio_openstack.provider import OpenstackProvider

Check: TypeAlias = tuple[str, bool, str]

SMALLEST = VolumeSpec(size_bytes=GIB, bandwidth_mb_s=1.0)


def run(provider: OpenstackProvider, wanted: VolumeSpec = SMALLEST) -> list[Check]:
    """Name, verdict and one sentence for each check; `wanted` is the largest volume the agent would buy.

    Never raises errors of `elastio.errors`: they are verdicts. Later checks that could only repeat the reason of
    the first failure are left out.
    """
    results = [
        _checked("OpenStack identity", provider, _identity),
        _checked("OpenStack credential", provider, _credential),
    ]
    if not all(ok for _, ok, _ in results):
        return results
    results.append(_checked("OpenStack server", provider, _server))
    return [
        *results,
        _checked("OpenStack volumes", provider, _volumes),
        _checked("OpenStack volume types", provider, lambda p: _types(p, wanted)),
        _checked("OpenStack quota", provider, lambda p: _quota(p, wanted)),
    ]


def _checked(name: str, provider: OpenstackProvider, check: Callable[[OpenstackProvider], str]) -> Check:
    try:
        return name, True, check(provider)
    except ElastioError as error:
        return name, False, str(error)


def _identity(provider: OpenstackProvider) -> str:
    return f"This is the server {provider.who().server_id}."


def _credential(provider: OpenstackProvider) -> str:
    login = provider.cloud().login()
    roles = sorted(login["roles"])
    if not login["project"]:
        raise AuthError(
            f"Keystone accepts {login['user']}, but for no project; name this server's project in clouds.yaml, or use "
            "an application credential of it."
        )
    if roles and set(roles) <= {"reader"}:
        raise AuthError("The credential has the role reader only, which buys nothing; make one with the role member.")
    kind = (
        "an application credential"
        if login["application_credential"]
        else "a password, better use an application credential"
    )
    broad = "; it may do more than it needs, leave the role admin out" if "admin" in roles else ""
    return f"Keystone accepts {login['user']} for project {login['project']} with {', '.join(roles)} ({kind}{broad})."


def _server(provider: OpenstackProvider) -> str:
    me = provider.identify()
    return f"Nova knows it: {me.instance_type or 'flavor unknown'} in {me.zone or 'an unnamed zone'}."


def _volumes(provider: OpenstackProvider) -> str:
    return f"Cinder answers; {len(provider.list_owned())} volume(s) carry this server's tag."


def _types(provider: OpenstackProvider, wanted: VolumeSpec) -> str:
    names = sorted(str(row["name"]) for row in provider.catalog.shown_types())
    strange = sorted(set(provider.settings.types) - set(names))
    if strange:
        raise RefusedError(
            f"Cinder shows no volume type {', '.join(strange)}, only {', '.join(names) or 'none'}; correct the name in "
            f"[provider.openstack.types.{strange[0]}]."
        )
    quoted = provider.quote(wanted)
    if not quoted.price_known:
        raise RefusedError(
            f"{wanted.bandwidth_mb_s:.0f} MB/s can be bought, but {quoted.price_source}: "
            "set price_per_gib_hour in [provider.openstack.types.NAME], or under a cap in currency nothing is bought."
        )
    price = f"{quoted.price_per_hour:.4f} {quoted.currency} per hour"
    return f"{wanted.bandwidth_mb_s:.0f} MB/s fit into a type of {quoted.spec.bandwidth_mb_s:g} MB/s ({price})."


def _quota(provider: OpenstackProvider, wanted: VolumeSpec) -> str:
    limits = provider.catalog.limits()
    size_gib = -(-wanted.size_bytes // GIB)
    for needed, used, most, unit in (
        (1, "totalVolumesUsed", "maxTotalVolumes", "volumes"),
        (size_gib, "totalGigabytesUsed", "maxTotalVolumeGigabytes", "GiB"),
    ):
        taken, limit = limits.get(used, 0), limits.get(most, -1)
        if 0 <= limit < taken + needed:
            raise QuotaError(
                f"{taken} of {limit} {unit} are used and {needed} more would be bought; delete unused volumes or ask "
                "the cloud's operator for a larger quota."
            )
    return f"The quota leaves room for {size_gib} GiB more."
