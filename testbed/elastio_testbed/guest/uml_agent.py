"""Runs programs and moves files for the laboratory, in a guest on user-mode Linux: `uml_agent.py`, as a service.

A request is a file in a folder of the host, which the guest mounts: N.json, with its input in N.in. On the serial line
come only its number, and back go the number and the exit code, when N.out and N.err are complete; `kN` kills N. Nothing
large passes the line, which would lose it.

It also gives the guest its network, and names to the serial lines that are the laboratory's ports: systemd-networkd and
a udev rule would take a fifth of the boot.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import tty
from typing import Any

# One request, as the host wrote it.
Request = dict[str, Any]

SHARE, LINE, PORTS = "/run/elastio-laboratory", "/dev/ttyS1", "/dev/virtio-ports"
# The first serial line that is a port; the host's side is `process.Uml`.
FIRST_PORT = 2
READY = b"READY\n"
OUTPUT_LIMIT = 16 << 20
# Answers that are no exit codes.
NOT_STARTED, FAILED = 1000, 1001
# Ioctls of netdevice(7), and flags of interfaces and routes.
SIOCADDRT, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x890B, 0x8914, 0x8916, 0x891C
UP_AND_RUNNING, ROUTE_UP = 0x41, 0x1
# The guest's address behind the network of `slirp`, as behind that of QEMU.
ADDRESS, ANY, ALONE = "10.0.2.15", "0.0.0.0", "255.255.255.255"


class Requests:
    """Serves the requests whose numbers come on the line `fd`, from the folder `share`."""

    def __init__(self, fd: int, share: str = SHARE) -> None:
        self.fd, self.share = fd, share
        self.lock = threading.Lock()
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def serve_all(self) -> None:
        left = b""
        while got := os.read(self.fd, 4096):
            left += got
            *words, left = left.split(b"\n")
            for word in words:
                self.take(word)

    def take(self, word: bytes) -> None:
        if word.startswith(b"k"):
            process = self.running.get(int(word[1:]))
            if process:
                process.kill()
        elif word.isdigit():
            threading.Thread(target=self.serve, args=(int(word),), daemon=True).start()

    def serve(self, number: int) -> None:
        try:
            with open(f"{self.share}/{number}.json") as file:
                request = json.load(file)
            kinds = {"run": self.run, "read": self.read, "write": self.write}
            code = kinds[request["kind"]](number, request)
        except Exception as error:  # whatever it is, the host must hear of it
            self.keep(number, "err", repr(error).encode())
            code = FAILED
        with self.lock:
            os.write(self.fd, b"%d %d\n" % (number, code))

    def run(self, number: int, request: Request) -> int:
        """Run a program; its answer is its exit code, or the negative number of the signal that ended it."""
        data = self.given(number) if request["input"] else None
        stdin = subprocess.DEVNULL if data is None else subprocess.PIPE
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                request["argv"], env=request["env"], cwd="/", stdin=stdin, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            self.keep(number, "err", str(error).encode())
            return NOT_STARTED
        self.running[number] = process
        try:
            out, err = process.communicate(data)
        finally:
            del self.running[number]
        self.keep(number, "out", out)
        self.keep(number, "err", err)
        return process.returncode

    def read(self, number: int, request: Request) -> int:
        with open(request["path"], "rb") as file:
            self.keep(number, "out", file.read())
        return 0

    def write(self, number: int, request: Request) -> int:
        """Create a new file, so that the old one's mode never applies to the new content."""
        path = request["path"]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, request["mode"]), "wb") as file:
            os.fchmod(file.fileno(), request["mode"])
            file.write(self.given(number))
        return 0

    def given(self, number: int) -> bytes:
        with open(f"{self.share}/{number}.in", "rb") as file:
            return file.read()

    def keep(self, number: int, kind: str, data: bytes) -> None:
        """Write a result to the host's disk, and not only to this machine's page cache."""
        if data:
            with open(f"{self.share}/{number}.{kind}", "wb") as file:
                file.write(data[:OUTPUT_LIMIT])
                file.flush()
                os.fsync(file.fileno())


def configure_network() -> None:
    def ifreq(name: bytes, data: bytes) -> bytes:
        return struct.pack("16s16s", name, data)

    def address(text: str) -> bytes:
        return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))

    flags = struct.pack("H", UP_AND_RUNNING)
    name = ctypes.create_string_buffer(b"eth0")
    # struct rtentry: the default route, through the interface, as nothing else is on its network.
    route = struct.pack(
        "@L16s16s16shhLPhPLLH",
        *(0, address(ANY), address(ANY), address(ANY), ROUTE_UP, 0, 0, 0, 0, ctypes.addressof(name), 0, 0, 0),
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, ifreq(b"lo", flags))
        fcntl.ioctl(control, SIOCSIFADDR, ifreq(b"eth0", address(ADDRESS)))
        fcntl.ioctl(control, SIOCSIFNETMASK, ifreq(b"eth0", address(ALONE)))
        fcntl.ioctl(control, SIOCSIFFLAGS, ifreq(b"eth0", flags))
        fcntl.ioctl(control, SIOCADDRT, route)


def open_raw(path: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(fd)
    return fd


def name_ports(names: list[str]) -> None:
    os.makedirs(PORTS, exist_ok=True)
    for number, name in enumerate(names, start=FIRST_PORT):
        os.close(open_raw(f"/dev/ttyS{number}"))
        os.symlink(f"../ttyS{number}", f"{PORTS}/{name}")


def mount_share(folder: str) -> None:
    if os.path.ismount(SHARE):
        return
    os.makedirs(SHARE, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", SHARE.encode(), b"hostfs", 0, folder.encode()):
        raise OSError(ctypes.get_errno(), "the host's folder cannot be mounted")


def tell_systemd() -> None:
    place = os.environ.get("NOTIFY_SOCKET")
    if place:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.sendto(b"READY=1", place)


def main() -> None:
    with open("/proc/cmdline") as file:
        arguments = dict(word.partition("=")[::2] for word in file.read().split())
    was_here = os.path.isdir(PORTS)
    if not was_here:
        try:
            configure_network()
        except OSError as error:
            print("no network:", error, file=sys.stderr, flush=True)
        name_ports([name for name in arguments.get("elastio.ports", "").split(",") if name])
    mount_share(arguments["elastio.share"])
    line = open_raw(LINE)
    tell_systemd()
    if was_here:  # it ended, and was started again: the host waits for nothing else
        os.write(line, READY)
    Requests(line).serve_all()


if __name__ == "__main__":
    main()
