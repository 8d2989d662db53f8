"""One guest of an experiment: its disk, file system, agent and workload."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from elastio.units import GIB, MB
from elastio_testbed import lvmcache
from elastio_testbed.dollars import agent_settings
from elastio_testbed.ec2 import Ec2Endpoint
from elastio_testbed.experiment import LEARNED_SETTING, Ahead, Scaled, Setup
from elastio_testbed.hypervisor import Disk, GuestError, Power, define_machine
from elastio_testbed.image import GuestImage

HOST_IN_GUEST = "10.0.2.2"  # the host's loopback, seen through QEMU's user network
DATA = "/data"
SPEC = "/var/tmp/workload.json"
REPORT = "/var/tmp/workload.report"
CONFIG = "/etc/elastio/elastio.toml"
RECORD = "/var/tmp/workload.record"
PROGRAMS = "/opt/testbed"
# Names of the kernel with this serial.
NAMED = 'for f in /sys/block/*/serial; do [ "$(cat $f)" = {} ] && basename $(dirname $f); done; true'
AGENT_SOCKET = "/run/elastio/elastio.sock"
# How long before the first dump it is announced: longer than the lead of an agent that has measured none. The time
# before the first dump is no part of a result.
FIRST_S = 30
TIMELINE = "/var/tmp/timeline.json"
SETTLE_S = 2.0
# An instance type whose EBS bandwidth (593 MB/s) is far above that of the volumes.
INSTANCE_TYPE = "m5.4xlarge"
# With so small a page cache, a burst of some hundred MiB reaches the device soon after its start.
SMALL_MIB = 768
# Without initialization in the background during the experiment.
MAKE_FILESYSTEM = {
    "ext4": ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}
# Settings of the agent, by table.
Tables = Mapping[str, Mapping[str, object]]


class Guest:
    """A virtual machine with one data volume, static or adaptive.

    `ahead`: how the agent learns of bursts before they begin; to be set before `prepare`. `device_option`: what names
    the data device to commands, where there is another one.
    """

    ahead: Ahead | None = None
    device_option: tuple[str, ...] = ()

    def __init__(
        self,
        image: GuestImage,
        folder: Path,
        name: str,
        setup: Setup,
        scaled: Scaled,
        *,
        sample_interval_s: float | None = None,
        ports: Mapping[str, Path] | None = None,
        memory_mib: int | None = None,
        power: Power | None = None,
    ) -> None:
        """Define the guest; nothing is started. Sampling interval and memory are by default those of `scaled`."""
        self.sample_interval_s = sample_interval_s or scaled.sample_interval_s
        self.name, self.setup, self.scaled = name, setup, scaled
        self.filesystem = "ext4"  # until `prepare`
        self.serial = f"{name}backing"[:20]
        # Without a limit at first: creating the file system is not part of an experiment.
        disks = [new_disk(folder, self.serial, scaled.backing_bytes)]
        self.fast_serial = f"{name}{lvmcache.FAST_SERIAL}" if setup is Setup.LVMCACHE else ""
        if self.fast_serial:
            disks.append(new_disk(folder, self.fast_serial, self.fixed_cache_bytes))
        disks += self._more_disks(folder)
        self.kept = tuple(disk.serial for disk in disks)
        memory_mib = memory_mib or scaled.experiment.workload.memory_mib(scaled)
        self.vm = define_machine(image, disks=disks, directory=folder, memory_mib=memory_mib, ports=ports, power=power)
        self.instance_id = ""
        self.backing_uuid = ""

    # --- preparing ---------------------------------------------------------------------------------------

    def be_made_as(self, filesystem: str) -> None:
        """Until `prepare`: with this file system."""
        self.filesystem = filesystem

    def prepare(self, endpoint: Ec2Endpoint, *, boot_s: float = 240.0) -> None:
        """Boot, create device and file system, start the agent, and set the bandwidth limits."""
        self.boot(boot_s)
        device = f"/dev/{self.disk_name()}"
        if self.setup is Setup.ADAPTIVE:
            device = self._make_adaptive(device)
        if self.fast_serial:
            for argv in lvmcache.lvm_commands(device, f"/dev/{self.disk_name(self.fast_serial)}"):
                self.check(argv, timeout_s=120)
            device = lvmcache.DEVICE
        self.check([*MAKE_FILESYSTEM[self.filesystem], device], timeout_s=120)
        self.check(["mkdir", "-p", DATA])
        self._mount(device)
        if self.setup is Setup.ADAPTIVE:
            self._start_agent(endpoint)
        self.check(["sync"], timeout_s=60)
        self.vm.set_limit(self.serial, self.cap_bytes_s)
        if self.fast_serial:
            self.vm.set_limit(self.fast_serial, self.scaled.cache_bytes_s)
        self.check(["systemd-run", "--unit=recorder", "python3", f"{PROGRAMS}/recorder.py", TIMELINE, "0.5"])

    def boot(self, boot_s: float = 240.0) -> None:
        """Boot with the laboratory's programs; nothing is set up."""
        self.vm.start(boot_s)
        self._copy_programs()

    def _copy_programs(self) -> None:
        """Copy two programs that are run by their paths, and the package of the workload's program."""
        places = {"recorder": PROGRAMS, "status_probe": PROGRAMS}
        modules = ("__init__", "reporting", "announcement", self.program)
        places |= dict.fromkeys(modules, f"{PROGRAMS}/elastio_testbed/guest")
        for program, place in places.items():
            text = resources.files("elastio_testbed.guest").joinpath(f"{program}.py").read_bytes()
            self.vm.agent.write_file(f"{place}/{program}.py", text)

    @property
    def program(self) -> str:
        return self.scaled.experiment.workload.program

    @property
    def fixed_cache_bytes(self) -> int:
        """The size of a permanent fast volume, that of the adaptive set-up's first cache; 0 without one."""
        return round(self.scaled.initial_cache_gib * GIB) if self.fast_serial else 0

    @property
    def backing_bytes(self) -> int:
        """The billed size of the data volume."""
        return self.scaled.backing_bytes

    @property
    def cap_bytes_s(self) -> int:
        """The bandwidth of the data volume in this set-up."""
        return self.scaled.fast_bytes_s if self.setup is Setup.STATIC_FAST else self.scaled.backing_bytes_s

    def disk_name(self, serial: str | None = None) -> str:
        """The kernel's name of the data disk, or of the disk with this serial."""
        serial = serial or self.serial
        names = self.check(["sh", "-c", NAMED.format(serial)]).split()
        if len(names) != 1:
            raise GuestError(f"{self.name}: {len(names)} disks show the serial {serial}")
        return names[0]

    def backing_device(self) -> str:
        """The kernel's name of the backing device."""
        return self.disk_name()

    def _more_disks(self, folder: Path) -> list[Disk]:
        """Other disks that the machine always has."""
        return []

    def _mount(self, device: str) -> None:
        self.check(["mount", device, DATA])

    def _make_adaptive(self, device: str) -> str:
        text = self.check(["elastio", "device", "create", device, "--yes"], timeout_s=120)
        self.backing_uuid = _word_after(text, "UUID")
        script = f"basename $(readlink /sys/block/{self.disk_name()}/bcache/dev)"
        return f"/dev/{self.check(['sh', '-c', script])}"

    def _start_agent(self, endpoint: Ec2Endpoint) -> None:
        self.instance_id = endpoint.add_instance(self.vm, instance_type=INSTANCE_TYPE)
        self.write_config(endpoint)
        self.check(["systemctl", "start", "elastiod"], timeout_s=90)
        self.wait_for(lambda status: status["owned"] is not None, 180, "the cloud to be asked")

    def write_config(self, endpoint: Ec2Endpoint, *changes: Tables) -> None:
        """Write the agent's configuration with `changes`."""
        text = config_text(self.config_tables(endpoint), ahead_tables(self.ahead), *changes)
        self.vm.agent.write_file(CONFIG, text.encode(), 0o640)

    def config_tables(self, endpoint: Ec2Endpoint) -> Tables:
        """The agent's configuration."""
        scaled = self.scaled
        metadata_url = endpoint.imds_url(self.instance_id, host=HOST_IN_GUEST)
        by_money = agent_settings(scaled, endpoint.scale)
        return {
            **by_money,
            "device": {
                "backing_uuid": f'"{self.backing_uuid}"',
                "bandwidth_mb_s": scaled.backing_bytes_s / MB,
                **credit_settings(scaled),
            },
            "cache": {
                "bandwidth_mb_s": scaled.cache_bytes_s / MB,
                "initial_size_gib": scaled.initial_cache_gib,
                "min_size_gib": scaled.least_cache_gib,
                "max_size_gib": scaled.most_cache_gib,
                "size_step_gib": scaled.unit_bytes / GIB,
            },
            "policy": {
                "inactivity_delay_s": scaled.inactivity_delay_s,
                "cool_down_s": 1,
                "lead_s": scaled.lead_s,
                **by_money.get("policy", {}),
            },
            "agent": {"sample_interval_s": self.sample_interval_s},
            "provider": {"name": '"aws"'},
            "provider.aws": {
                "endpoint_url": f'"{endpoint.url_from(HOST_IN_GUEST)}"',
                "metadata_url": f'"{metadata_url}"',
            },
            "provider.aws.scale": {"gib_bytes": endpoint.scale.gib_bytes, "mib_s_bytes": endpoint.scale.mib_s_bytes},
        }

    # --- the workload ------------------------------------------------------------------------------------

    def workload_spec(self, seed: int) -> dict[str, Any]:
        """The spec of the workload's program."""
        workload = self.scaled.experiment.workload
        spec = {"directory": DATA, "seed": seed, "record": RECORD, **workload.spec(self.scaled)}
        if self.ahead is Ahead.EXPECT and self.setup is Setup.ADAPTIVE:
            spec |= {"announced": self.scaled.dumps_bytes, "agent_socket": AGENT_SOCKET, "first_s": FIRST_S}
        return spec

    def start_workload(self, seed: int) -> None:
        self.vm.agent.write_file(SPEC, json.dumps(self.workload_spec(seed)).encode())
        self.vm.agent.write_file(REPORT, b"")
        self.check(["systemd-run", "--unit=workload", *self.command(), "run", SPEC, REPORT])

    def command(self) -> list[str]:
        """The command of the workload's program; append `run` or `verify` and its files."""
        return ["env", f"PYTHONPATH={PROGRAMS}", "python3", "-m", f"elastio_testbed.guest.{self.program}"]

    def workload_state(self) -> str:
        """`running`, `done`, or the error. Starts no program in the guest, which would disturb the measurement."""
        last = self._workload_lines()[-1:]
        if not last or "dump" in last[0]:
            return "running"
        return str(last[0].get("error", "done"))

    def _workload_lines(self) -> list[dict[str, Any]]:
        text = self.vm.agent.read_file(REPORT).decode()
        return [json.loads(line) for line in text.splitlines()]

    def dumps(self) -> list[dict[str, Any]]:
        """Start and end (guest's wall clock) and bytes of every dump so far."""
        return [line for line in self._workload_lines() if "dump" in line]

    def verify(self) -> dict[str, Any]:
        """Let the workload check its data on the device, bypassing the page cache."""
        self.check(["sync"], timeout_s=120)
        if self.setup is Setup.ADAPTIVE:
            self.check(["elastio", "pause"], timeout_s=90)  # reading everything back would start a boost
        for serial in self.vm.disks():
            self.vm.set_limit(serial, None)
        self.check(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"], timeout_s=60)
        text = self.check([*self.command(), "verify", SPEC], timeout_s=900)
        found: dict[str, Any] = json.loads(text)
        return found

    def timeline(self) -> list[dict[str, Any]]:
        text = self.vm.agent.read_file(TIMELINE).decode()
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    # --- the agent ---------------------------------------------------------------------------------------

    def status(self, device: str = "elastio") -> dict[str, Any]:
        """The status of the agent of the device with this name; the single one has that of `elastio.toml`."""
        probe = ["python3", "-S", f"{PROGRAMS}/status_probe.py", device]
        found: dict[str, Any] = json.loads(self.check(probe, timeout_s=90))
        return found

    def elastio(self, *arguments: str) -> list[str]:
        """A command of the agent's program that acts on the data device."""
        return ["elastio", *arguments, *self.device_option]

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.check(["elastio", "report", "--json"], timeout_s=60))
        return found

    def decisions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.check(["elastio", "why", "-n", "200", "--json"], timeout_s=60))
        return found

    def wait_for(self, condition: Any, seconds: float, what: str, *, device: str = "elastio") -> dict[str, Any]:
        """Poll the status of the device's agent until the condition is true. Raises GuestError after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            try:
                status = self.status(device)
                if condition(status):
                    return status
            except GuestError as error:
                if time.monotonic() > end:
                    raise GuestError(f"{self.name}: waited {seconds:.0f} s for {what}: {error}") from error
            if time.monotonic() > end:
                raise GuestError(f"{self.name}: waited {seconds:.0f} s for {what}; {self.agent_log()}")
            time.sleep(SETTLE_S)

    def agent_log(self) -> str:
        command = ["journalctl", "--no-pager", "-u", "elastiod", "-n", "30", "-o", "cat"]
        return self.vm.agent.run(command, timeout_s=30).text

    def check(self, argv: list[str], *, timeout_s: float = 30.0) -> str:
        return self.vm.agent.check(argv, timeout_s=timeout_s).strip()


def credit_settings(scaled: Scaled) -> dict[str, object]:
    """The settings of a data volume with credits; empty for one without."""
    bucket = scaled.bucket
    if bucket is None:
        return {}
    return {
        "base_bandwidth_mb_s": bucket.base_mb_s,
        "credits_gib": bucket.capacity_bytes / GIB,
        "first_credits_gib": scaled.first_credits_bytes / GIB,
    }


def ahead_tables(ahead: Ahead | None) -> Tables:
    """The agent's settings for bursts that it forecasts itself; those that are announced need none."""
    if ahead is not Ahead.LEARNED:
        return {}
    table, key, value = LEARNED_SETTING
    return {table: {key: value}}


def config_text(*layers: Tables) -> str:
    """A configuration file; a later layer replaces settings of the earlier ones. Strings are quoted as in TOML."""
    tables: dict[str, dict[str, object]] = {}
    for layer in layers:
        for name, table in layer.items():
            tables.setdefault(name, {}).update(table)
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in table.items()) for name, table in tables.items()
    )


def new_disk(folder: Path, serial: str, size_bytes: int) -> Disk:
    """An empty disk without limits, in a sparse file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{serial}.img"
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return Disk(serial, path, None)


def _word_after(text: str, label: str) -> str:
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if label in words and len(words) > words.index(label) + 1:
            return words[words.index(label) + 1]
    raise GuestError(f"no {label} in: {text}")
