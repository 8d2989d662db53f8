"""Finds providers, extensions of the command line and the simulator by entry point, and imports only what is used.

A distribution registers a provider as an entry point of the group `elastio.providers`: a callable
`(settings, backing_uuid) -> VolumeProvider`. The package of its module may have five more modules, which import no
SDK: `identity` with `detect() -> bool` (is this machine in that cloud?), for `elastio init`; `checks` with
`run(provider, wanted: VolumeSpec) -> list[tuple[str, bool, str]]` (name, passed, sentence), for `elastio doctor`;
`fleet` with `open_fleet(settings) -> elastio.janitor.Fleet`, for `elastio janitor`; `prices` with
`price_list(settings, region) -> PriceList` and `price(settings, region, spec) -> Quote`, which call no cloud, for
`elastio prices` and `elastio report`; and `credits` with `credit_rule(volume_type) -> CreditRule | None`, for
`device.volume_type`.

Extensions:

- `elastio.commands`: a click command, beside the agent's own ones.
- `elastio.plots`: `timeline(runs, title, path)` draws the runs of `elastio simulate --trace`;
  `bandwidth(points, inflection_mb_s, title, path)` the curve of `elastio profile`; `report(ledgers, report, machine,
  credits)` returns the page of `elastio report --html`.
- `elastio.simulator`: of the simulated machine, `run(config_path)` is `elastiod --sim`; `config()` its configuration
  where there is no file, and `socket()` the path of its control socket then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from elastio.errors import ConfigError, ElastioError

if TYPE_CHECKING:
    from elastio.core.model import Quote, VolumeSpec
    from elastio.janitor import Fleet
    from elastio.ports import VolumeProvider
    from elastio.strategy.credits import CreditRule
    from elastio.strategy.tariff import PriceList

GROUP = "elastio.providers"
Checks = list[tuple[str, bool, str]]


def providers() -> dict[str, EntryPoint]:
    """Every installed provider by name. Raises ConfigError if two distributions register the same name."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        other = found.setdefault(entry.name, entry)
        if other is not entry and (_owner(other), other.value) != (_owner(entry), entry.value):
            raise ConfigError(
                f"two distributions register the provider {entry.name}: {_owner(other)} and {_owner(entry)}; "
                "uninstall one of them",
                code="provider.ambiguous",
            )
    return found


def open_provider(name: str, settings: Mapping[str, object], backing_uuid: str) -> VolumeProvider:
    """The provider `name` with its settings. Imports its SDK. Raises ConfigError."""
    entry = _find(name)
    factory = _load(entry)
    try:
        return cast("VolumeProvider", factory(settings, backing_uuid))
    except ImportError as error:
        raise _missing(entry, error) from error


def detect_provider() -> str | None:
    """The first installed provider, in order of names, whose cloud this machine is in; None if there is none."""
    for name, entry in sorted(providers().items()):
        detect = _sibling(entry, "identity", "detect")
        if detect is not None and detect():
            return name
    return None


def run_checks(name: str, provider: VolumeProvider, wanted: VolumeSpec) -> Checks:
    """The provider's own checks of credentials, quota and limits; empty if it has none.

    `wanted`: the largest volume that the agent would buy.
    """
    checks = _sibling(_find(name), "checks", "run")
    return [] if checks is None else list(checks(provider, wanted))


def open_fleet(name: str, settings: Mapping[str, object]) -> Fleet:
    """The volumes of an account, for the janitor. Raises ConfigError if the provider cannot list them."""
    opened = _sibling(_find(name), "fleet", "open_fleet")
    if opened is None:
        raise ConfigError(
            f"the provider {name} does not list the volumes of a whole account, which the janitor needs",
            code="provider.fleet",
        )
    return cast("Fleet", opened(settings))


def price_list(name: str, settings: Mapping[str, object], region: str = "") -> PriceList | None:
    """The tariffs that the provider knows of one region, or of all, without asking its cloud; None: it has no list.

    Raises ConfigError.
    """
    listed = _sibling(_find(name), "prices", "price_list")
    return None if listed is None else cast("PriceList", listed(settings, region))


def price(name: str, settings: Mapping[str, object], region: str, spec: VolumeSpec) -> Quote | None:
    """The price of a volume that provides `spec`, without asking the cloud; None: the provider has no list.

    Raises ConfigError, and RefusedError for a volume that is not sold.
    """
    priced = _sibling(_find(name), "prices", "price")
    return None if priced is None else cast("Quote", priced(settings, region, spec))


def credit_rule(name: str, volume_type: str) -> CreditRule | None:
    """How volumes of this type earn and spend credits, without asking the cloud; None: the provider knows no credits.

    Raises ConfigError.
    """
    known = _sibling(_find(name), "credits", "credit_rule")
    return None if known is None else cast("CreditRule | None", known(volume_type))


def _find(name: str) -> EntryPoint:
    installed = providers()
    if name in installed:
        return installed[name]
    names = ", ".join(sorted(installed)) or "none"
    raise ConfigError(
        f"provider.name is {name!r} and no such provider is installed (installed: {names}); "
        f"install the distribution that has it, or, in a checkout, the extra: pip install '.[{name}]'",
        code="provider.name",
    )


def _load(entry: EntryPoint) -> Callable[..., Any]:
    try:
        loaded = entry.load()
    except ImportError as error:
        raise _missing(entry, error) from error
    except AttributeError as error:
        raise _broken(entry, str(error)) from error
    if not callable(loaded):
        raise _broken(entry, f"{entry.value} cannot be called")
    return cast("Callable[..., Any]", loaded)


def _broken(entry: EntryPoint, reason: str) -> ConfigError:
    return ConfigError(f"the provider {entry.name} of {_owner(entry)} is broken: {reason}", code="provider.broken")


def _missing(entry: EntryPoint, error: ImportError) -> ConfigError:
    """The error that says what to install: the extra with the provider's name, if its distribution has one."""
    extras = entry.dist.metadata.get_all("Provides-Extra", []) if entry.dist else []
    wanted = f"{_owner(entry)}[{entry.name}]" if entry.name in extras else _owner(entry)
    return ConfigError(
        f"the provider {entry.name} cannot be loaded ({error}); install {wanted}", code="provider.not_installed"
    )


def _sibling(entry: EntryPoint, module: str, function: str) -> Callable[..., Any] | None:
    """A function of an optional module in the package of the entry point; None if there is none."""
    package = entry.module.rpartition(".")[0]
    name = f"{package}.{module}"
    if not package or find_spec(name) is None:
        return None
    return cast("Callable[..., Any] | None", getattr(import_module(name), function, None))


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unnamed distribution"


COMMANDS = "elastio.commands"
PLOTS = "elastio.plots"
SIMULATOR = "elastio.simulator"


def installed(group: str) -> dict[str, EntryPoint]:
    """Every entry point of the group by name."""
    return {entry.name: entry for entry in entry_points(group=group)}


def load(entry: EntryPoint) -> Any:
    """What the entry point names. Raises ElastioError where it, or a library that it needs, is not installed."""
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        text = f"{entry.name} of {_owner(entry)} cannot be loaded: {error}"
        raise ElastioError(text, code="extension.broken") from error


def simulator(name: str) -> Callable[..., Any]:
    """`run`, `config` or `socket` of the group. Raises ElastioError `simulator.missing` where it is not installed."""
    entry = installed(SIMULATOR).get(name)
    text = "--sim needs the simulator, which is not installed: install elastio again"
    if entry is None:
        raise ElastioError(text, code="simulator.missing")
    try:
        return cast("Callable[..., Any]", load(entry))
    except ElastioError as error:
        raise ElastioError(f"{text} ({error})", code="simulator.missing") from error
