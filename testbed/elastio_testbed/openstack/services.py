"""The daemons of a one-node OpenStack, in the order of their dependencies."""

from __future__ import annotations

from elastio_testbed.openstack.daemons import Daemon

# Erlang's distribution on loopback only, and no busy waiting.
_BEAM = "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"
_ERLANG = (
    "env",
    "ERL_EPMD_ADDRESS=127.0.0.1",
    "RABBITMQ_NODENAME=rabbit@localhost",
    "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
    "RABBITMQ_LOGS=-",
    f"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS={_BEAM}",
)


def _wsgi(name: str, port: int, program: str) -> Daemon:
    options = "--master --processes 1 --threads 6 --enable-threads --lazy-apps --die-on-term --no-orphans"
    wire = "--buffer-size 65535 --socket-timeout 60 --disable-logging"
    # uwsgi's HTTP router does not keep connections alive, and has to announce it.
    headers = ("--add-header", "Connection: close", "--rem-header", "Content-Length")
    start = ("uwsgi_python3", "--http-socket", f"127.0.0.1:{port}")
    return Daemon(name, (*start, *options.split(), *wire.split(), *headers, "--wsgi-file", program), port)


MARIADB = Daemon(
    "mariadb",
    (
        *("mariadbd", "--user=mysql", "--bind-address=127.0.0.1", "--port=3306", "--skip-name-resolve"),
        # The databases need not survive a crash of the machine.
        *("--max-connections=600", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"),
        "--innodb-buffer-pool-size=128M",
    ),
    3306,
)
EPMD = Daemon("epmd", ("env", "ERL_EPMD_ADDRESS=127.0.0.1", "epmd"), 4369)
RABBITMQ = Daemon("rabbitmq", (*_ERLANG, "/usr/lib/rabbitmq/bin/rabbitmq-server"), 5672)
LIBVIRT = Daemon("libvirtd", ("libvirtd",))
INFRASTRUCTURE = (MARIADB, EPMD, RABBITMQ, LIBVIRT)

KEYSTONE = _wsgi("keystone", 5000, "/usr/bin/keystone-wsgi-public")
PLACEMENT = _wsgi("placement", 8778, "/usr/bin/placement-api")
IDENTITY = (KEYSTONE, PLACEMENT)

NEUTRON_FILES = ("--config-file", "/etc/neutron/neutron.conf", "--config-file", "/etc/neutron/plugins/ml2/ml2_conf.ini")
NOVA_API = Daemon("nova-api", ("nova-api",), 8774)
NOVA_COMPUTE = Daemon("nova-compute", ("nova-compute",))
CINDER_API = Daemon("cinder-api", ("cinder-api",), 8776)
CINDER_VOLUME = Daemon("cinder-volume", ("cinder-volume",))
CLOUD = (
    Daemon("glance-api", ("glance-api", "--config-file", "/etc/glance/glance-api.conf"), 9292),
    Daemon("neutron", ("neutron-server", *NEUTRON_FILES), 9696),
    Daemon("nova-conductor", ("nova-conductor",)),
    Daemon("nova-scheduler", ("nova-scheduler",)),
    NOVA_API,
    NOVA_COMPUTE,
    CINDER_API,
    Daemon("cinder-scheduler", ("cinder-scheduler",)),
    CINDER_VOLUME,
)
ALL = (*INFRASTRUCTURE, *IDENTITY, *CLOUD)
