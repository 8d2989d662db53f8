"""The program: `python -m elastio_testbed.hypervisor.vhost DESCRIPTOR`."""

import socket
import sys

from elastio_testbed.hypervisor.vhost.server import Server

Server(socket.socket(fileno=int(sys.argv[1]))).run()
