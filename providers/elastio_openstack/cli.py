"""`elastio openstack`: what the agent needs from an OpenStack project. Calls no cloud and needs no SDK."""

from __future__ import annotations

import re

import click

from elastio_openstack.access_rules import CINDER, CINDER_NAMES, RULES, SERVER, to_json

# Of Nova's servers; some clouds write it without hyphens.
SERVER_ID = re.compile(r"[0-9a-fA-F-]{32,36}")
ROLE = """\
role         member, in the project of the server: by the default policies of Nova and Cinder it allows every call below
not needed   admin; reader is not enough
bandwidth    most clouds let only admin read QoS specs: then set bandwidth_mb_s in [provider.openstack.types.NAME]
quota        one volume more, with the GiB of the largest cache

The agent makes these calls, beside logins:
"""
NEXT = """\

next steps, with the openstack client and your own user in that project:
  elastio openstack role --rules --server {server} > rules.json
  openstack application credential create elastio --role member --access-rules rules.json
Write the id and the secret that it prints to /etc/openstack/clouds.yaml on the server (owner root, mode 0600):
  clouds:
    elastio:
      auth_type: v3applicationcredential
      auth:
        auth_url: https://KEYSTONE:5000/v3
        application_credential_id: ...
        application_credential_secret: ...
If every call then returns 401, the cloud's services do not know their names: leave --access-rules out.
"""


def _server_id(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if value != SERVER and not SERVER_ID.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not the id of a server: see `openstack server show NAME -c id`")
    return value


@click.group(name="openstack")
def openstack() -> None:
    """Show what the agent needs from an OpenStack project."""


@openstack.command()
@click.option("--server", metavar="ID", default=SERVER, callback=_server_id, help="Id of the server, for the rules.")
@click.option("--rules", is_flag=True, help="Print only the access rules, as JSON.")
@click.option(
    "--cinder",
    type=click.Choice(CINDER_NAMES),
    default=CINDER,
    show_default=True,
    help="Type of the block storage service in the catalog.",
)
def role(server: str, rules: bool, cinder: str) -> None:
    """Print the role that the agent needs, its calls, and how to make an application credential for it.

    Nothing is changed.
    """
    if rules:
        click.echo(to_json(server, cinder), nl=False)
        return
    click.echo(ROLE, nl=False)
    for rule in RULES:
        service = cinder if rule.service == CINDER else rule.service
        path = rule.path.replace(SERVER, server)
        click.echo(f"  {rule.purpose:<50}{service:<14}{rule.method:<7}{path}")
    click.echo(NEXT.format(server=server), nl=False)
