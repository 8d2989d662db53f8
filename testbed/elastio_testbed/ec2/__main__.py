"""`python -m elastio_testbed.ec2`: the endpoint alone, to point the AWS provider at."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from elastio_testbed.ec2.bridge import Scale
from elastio_testbed.ec2.endpoint import Ec2Endpoint


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Port on 127.0.0.1; 0 takes a free one.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Where the sparse files behind the volumes go.",
)
@click.option("--region", default="us-east-1", show_default=True, help="The one region that is served.")
@click.option(
    "--latency-scale",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Factor on EBS's own delays; 0 means none.",
)
@click.option("--rate-limits/--no-rate-limits", default=True, show_default=True, help="EC2's call budget.")
@click.option("--instances", type=click.IntRange(min=0), default=1, show_default=True, help="Instances at the start.")
@click.option("--gib-bytes", type=int, default=2**30, show_default=True, help="Real bytes behind one GiB.")
def main(
    port: int,
    folder: Path,
    region: str,
    latency_scale: float,
    rate_limits: bool,
    instances: int,
    gib_bytes: int,
) -> None:
    """Serve an EC2-compatible API on 127.0.0.1 until interrupted.

    Faults, delays and the log are under /_lab/ of the same port; instances have no disks here.
    """
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    endpoint = Ec2Endpoint(
        folder,
        port=port,
        region=region,
        scale=Scale(gib_bytes=gib_bytes),
        latency_scale=latency_scale,
        rate_limits=rate_limits,
    )
    try:
        endpoint.start()
    except OSError as error:
        raise click.ClickException(f"port {port} of 127.0.0.1 cannot be used: {error}") from error
    try:
        click.echo(f"AWS_ENDPOINT_URL_EC2={endpoint.url}")
        for _ in range(instances):
            instance_id = endpoint.add_instance(None)
            click.echo(f"{instance_id} AWS_EC2_METADATA_SERVICE_ENDPOINT={endpoint.imds_url(instance_id)}")
        ended.wait()
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    finally:
        endpoint.stop()


if __name__ == "__main__":
    main()
