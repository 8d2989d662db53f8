"""The agent's status, straight from its control socket: `python3 status_probe.py [DEVICE]`.

The `elastio` command prints the same, but its start takes an emulated processor seconds, which would disturb the
measurement.
"""

import json
import socket
import sys

DEVICE = "elastio"  # the single one


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else DEVICE
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(20)
        sock.connect(f"/run/elastio/{device}.sock")
        sock.sendall(b'{"version":1,"command":"status"}\n')
        reply = json.loads(sock.makefile().readline())
    print(json.dumps(reply["status"]))


if __name__ == "__main__":
    main()
