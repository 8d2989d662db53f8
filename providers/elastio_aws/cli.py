"""`elastio aws`: what the agent needs from an AWS account. Calls no cloud and needs no SDK."""

from __future__ import annotations

import json
from uuid import UUID

import click
from click.core import ParameterSource

from elastio_aws import gp3
from elastio_aws.policy import (
    PARTITIONS,
    InstanceArn,
    VolumeLimits,
    instance_policy,
    janitor_policy,
    take_over_policy,
    to_json,
    trust_policy,
)

LIMITS = VolumeLimits()
FILE = "elastio-policy.json"


def _instance_arn(_context: click.Context, _option: click.Parameter, value: str | None) -> InstanceArn | None:
    try:
        return None if value is None else InstanceArn.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.group(name="aws")
def aws() -> None:
    """Show what the agent needs from an AWS account."""


@aws.command()
@click.option(
    "--max-gib",
    metavar="GIB",
    type=click.IntRange(gp3.MIN_GIB, gp3.MAX_GIB),
    default=LIMITS.size_gib,
    show_default=True,
    help="Largest volume that may be bought.",
)
@click.option(
    "--max-iops",
    metavar="N",
    type=click.IntRange(gp3.FREE_IOPS, gp3.MAX_IOPS),
    default=LIMITS.iops,
    show_default=True,
    help="Most IOPS of a volume that may be bought.",
)
@click.option(
    "--max-mib-s",
    metavar="MIB/S",
    type=click.IntRange(gp3.FREE_MIB_S, gp3.MAX_MIB_S),
    default=LIMITS.throughput_mib_s,
    show_default=True,
    help="Most throughput of a volume that may be bought.",
)
@click.option(
    "--partition",
    type=click.Choice(sorted(PARTITIONS)),
    default="aws",
    show_default=True,
    help="Partition of the account.",
)
@click.option("--janitor", is_flag=True, help="Print the policy of whoever runs `elastio janitor` instead.")
@click.option(
    "--take-over",
    metavar="UUID",
    type=click.UUID,
    help="Print what is needed in addition to take over a cache of this backing device instead; with --from.",
)
@click.option(
    "--from",
    "dead",
    metavar="ARN",
    callback=_instance_arn,
    help="With --take-over: the instance that is gone, as the tag elastio:owner of the volume names it.",
)
@click.pass_context
def policy(
    ctx: click.Context,
    max_gib: int,
    max_iops: int,
    max_mib_s: int,
    partition: str,
    janitor: bool,
    take_over: UUID | None,
    dead: InstanceArn | None,
) -> None:
    """Print the IAM policy for the role of the instance, as JSON.

    The next steps, with the AWS CLI and your own permissions, are printed on stderr. Nothing is changed.
    """
    if janitor and take_over:
        raise click.UsageError("give --janitor or --take-over, not both")
    if (take_over is None) != (dead is None):
        raise click.UsageError("--take-over and --from belong together: the policy names the instance that is gone")
    if dead is not None and _is_given(ctx, "partition") and dead.partition != partition:
        raise click.UsageError(f"--from is an instance of the partition {dead.partition}: leave out --partition")
    if janitor or take_over:
        given = [n for n in ("max_gib", "max_iops", "max_mib_s") if _is_given(ctx, n)]
        if given:
            name = "--janitor" if janitor else "--take-over"
            raise click.UsageError(f"{name} buys nothing: leave out --{given[0].replace('_', '-')}")
        document = take_over_policy(str(take_over), dead) if take_over and dead else janitor_policy(partition)
        click.echo(to_json(document), nl=False)
        return
    click.echo(to_json(instance_policy(VolumeLimits(max_gib, max_iops, max_mib_s), partition)), nl=False)
    click.echo(next_steps(partition), err=True)


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def next_steps(partition: str) -> str:
    """The commands that make a role of the policy and give it to an instance."""
    trust = json.dumps(trust_policy(partition), separators=(",", ":"))
    return "\n".join(
        (
            f"next steps, with the policy in {FILE}:",
            f"  aws iam create-role --role-name elastio --assume-role-policy-document '{trust}'",
            f"  aws iam put-role-policy --role-name elastio --policy-name elastio --policy-document file://{FILE}",
            "  aws iam create-instance-profile --instance-profile-name elastio",
            "  aws iam add-role-to-instance-profile --instance-profile-name elastio --role-name elastio",
            "  aws ec2 associate-iam-instance-profile --instance-id i-... --iam-instance-profile Name=elastio",
        )
    )
