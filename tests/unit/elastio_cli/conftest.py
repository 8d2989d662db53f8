"""A real control server in a thread, with replies that a test prepares, and the command line that talks to it."""

from __future__ import annotations

import selectors
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.control.protocol import Message, Reply, accepted, refused
from elastio.control.server import ControlServer
from elastio.control.status import Status
from elastio.core.model import BackingView, CacheState, HostView, Identity, Rates, Sample
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Fault, FaultKind, Observation, Phase
from elastio.errors import HostError
from elastio.strategy.memory import SpeedBounds
from elastio.strategy.spending import Caps, Spend
from elastio_cli.app import App
from elastio_cli.main import main
from tests.values import backing, changed

Golden = Callable[[str, str], None]  # the fixture `golden`: a file of tests/golden, what was printed
VOLUME_SERIAL = "vol0123456789abcdef0"
POLICY = Policy(60.0, 128.0, caps=Caps(max_boosts_per_day=10, max_agbs_per_day=50000.0))


def backing_with(dirty_bytes: int) -> BackingView:
    return backing(state=CacheState.DIRTY if dirty_bytes else CacheState.NO_CACHE, dirty_bytes=dirty_bytes)


def published(
    state: AgentState,
    *,
    dirty_bytes: int = 0,
    neighbours: frozenset[str] = frozenset(),
    bandwidth: SpeedBounds | None = None,
    **around: Any,
) -> Status:
    """The status document of an agent that has been up for 7620 s."""
    obs = Observation(
        now=8000.0,
        wall=1_790_000_000.0,
        host=HostView(7999.0, "boot", backing_with(dirty_bytes)),
        sample=Sample(8000.0, 1.0, Rates(0.0, 50.4)),
        spend=Spend(2, 1234.5, 0.12),
    )
    known = {"identity": Identity("aws", "i-0123", "eu-west-1a", "eu-west-1", "m5.large"), **around}
    policy = replace(POLICY, neighbours=neighbours, bandwidth=bandwidth)
    return status_of(state, obs, policy, RuntimeInfo("0.1.0", 380.0, **known))


def standing(phase: Phase, *, fault: str = "", **changes: Any) -> AgentState:
    """The state of an agent that has read its phase off the kernel; `fault` is that of a missing cache."""
    known = Fault(FaultKind.CACHE_MISSING, fault) if fault else None
    return changed(AgentState(phase=phase, recovered=True, fault=known), **changes)


TELLING = f"""
from elastio.core.model import Identity
from elastio.strategy.tariff import Tariff, unpriced
class Toy:
    def __init__(self, settings):
        self.settings = settings
    def identify(self):
        return Identity("toy", "i-1", "z", "r", "t.small", self.settings.get("limit_mb_s", 400.0))
    def quote(self, spec):
        if not self.settings.get("priced", True):
            return unpriced(spec, "EUR", 60.0, "no price is known here")
        return Tariff("EUR", per_gib_hour=0.001, minimum_s=60.0, source="a price list").quote(spec)
    def bandwidth_of(self, serial):
        return 90.0 if serial == "{VOLUME_SERIAL}" else None
def open_provider(settings, uuid):
    return Toy(settings)
"""


@dataclass
class FakeAgent:
    """Replies as prepared: `statuses` in turn (the last one stays), `replies` by command."""

    path: Path
    statuses: list[Status] = field(default_factory=lambda: [published(standing(Phase.IDLE))])
    replies: dict[str, Message] = field(default_factory=dict)
    asked: list[Message] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def handle(self, request: Message, reply: Reply) -> None:
        self.asked.append(request)
        if request["command"] == "status":
            seen = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            reply(accepted(status=seen.to_json()))
        else:
            reply(self.replies.get(request["command"], refused("the test prepared no reply")))

    def start(self) -> None:
        self._stop.clear()
        server = ControlServer(self.path, None, self.handle)
        self._thread = threading.Thread(target=self._serve, args=(server,))
        self._thread.start()

    def _serve(self, server: ControlServer) -> None:
        with selectors.DefaultSelector() as selector:
            server.register(selector)
            while not self._stop.is_set():
                for key, mask in selector.select(0.02):
                    server.on_ready(key, mask)
                server.sweep()
            server.close()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    """A daemon that answers on the socket `agent.sock` of the test's folder."""
    fake = FakeAgent(tmp_path / "agent.sock")
    fake.start()
    yield fake
    fake.stop()


@dataclass(frozen=True)
class Shell:
    app: App

    def __call__(self, *args: str, stdin: str = "") -> Result:
        return CliRunner().invoke(main, list(args), input=stdin, obj=self.app, catch_exceptions=False)


@pytest.fixture
def elastio(tmp_path: Path) -> Shell:
    """`elastio ...` with the test's folder for configuration, socket and kernel; no program is run."""

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        raise HostError(f"{argv[0]} is not installed")

    return Shell(
        App(
            config_path=tmp_path / "elastio.toml",
            socket=tmp_path / "agent.sock",
            root=tmp_path / "root",
            poll_s=0.01,
            run=run,
            is_terminal=lambda: False,
        )
    )


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """Python ignores SIGINT where it was started to ignore it, as in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed provider that knows this machine and asks no cloud."""
    site = tmp_path / "site"
    (site / "toy-1.0.dist-info").mkdir(parents=True)
    (site / "toy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (site / "toy-1.0.dist-info" / "entry_points.txt").write_text("[elastio.providers]\ntoy = toycloud:open_provider\n")
    (site / "toycloud.py").write_text(
        "from elastio.core.model import Identity\n"
        "class Toy:\n"
        "    def identify(self):\n"
        "        return Identity('toy', 'i-1', 'z', 'r', 't.small', 100.0)\n"
        "def open_provider(settings, uuid):\n"
        "    return Toy()\n"
    )
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "toycloud", raising=False)  # that of another test


@pytest.fixture
def telling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that knows this machine and the bandwidth of its volume."""
    site = tmp_path / "site"
    info = site / "telling-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: telling\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[elastio.providers]\ntoy = tellingcloud:open_provider\n")
    (site / "tellingcloud.py").write_text(TELLING)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "tellingcloud", raising=False)
