"""Providers found by entry point: real distributions, laid out in a folder as an installer would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from elastio import registry
from elastio.core.model import VolumeSpec
from elastio.errors import ConfigError

UUID = "01234567-89ab-cdef-0123-456789abcdef"

TOY = """
class Toy:
    def __init__(self, settings, backing_uuid):
        self.settings, self.backing_uuid = settings, backing_uuid

def open_provider(settings, backing_uuid):
    return Toy(settings, backing_uuid)
"""
WANTED = VolumeSpec(10**9, 128.0)


class Site:
    """A folder of installed distributions, on sys.path while the test runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, distribution: str, provider: str, module: str, code: str, *extras: str) -> None:
        info = self.folder / f"{distribution}-1.0.dist-info"
        info.mkdir()
        offered = "".join(f"Provides-Extra: {e}\n" for e in extras)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n{offered}")
        (info / "entry_points.txt").write_text(f"[elastio.providers]\n{provider} = {module}:open_provider\n")
        self.module(module, code)

    def module(self, name: str, code: str) -> None:
        """`package.module` or `module`; a package is a folder, as importlib takes it."""
        path = self.folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def refusal(name: str = "toy") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        registry.open_provider(name, {}, UUID)
    return caught.value


def test_opens_the_named_provider_with_its_settings(site: Site) -> None:
    site.install("toy-cloud", "toy", "toy_provider", TOY)
    opened = registry.open_provider("toy", {"region": "here"}, UUID)
    assert vars(opened) == {"settings": {"region": "here"}, "backing_uuid": UUID}


def test_imports_no_provider_before_it_is_opened(site: Site) -> None:
    site.install("toy-cloud", "toy", "toy_lazy", TOY)
    assert "toy" in registry.providers()
    assert "toy_lazy" not in sys.modules


def test_an_unknown_name_lists_what_is_installed(site: Site) -> None:
    site.install("toy-cloud", "toy", "toy_provider", TOY)
    refused = refusal("azure")
    assert refused.code == "provider.name"
    assert "toy" in str(refused).partition("(installed: ")[2].partition(")")[0].split(", ")


def test_two_distributions_with_one_name_are_refused_naming_both(site: Site) -> None:
    site.install("toy-cloud", "toy", "toy_provider", TOY)
    site.install("other-cloud", "toy", "other_provider", TOY)
    with pytest.raises(ConfigError) as caught:
        registry.providers()
    assert caught.value.code == "provider.ambiguous"
    assert "toy-cloud" in str(caught.value)
    assert "other-cloud" in str(caught.value)


@pytest.mark.parametrize(("extras", "install"), [(("toy",), " toy-cloud[toy]"), ((), " toy-cloud")])
def test_a_missing_sdk_says_what_to_install(extras: tuple[str, ...], install: str, site: Site) -> None:
    site.install("toy-cloud", "toy", "toy_provider", "import a_sdk_that_is_not_installed\n", *extras)
    refused = refusal()
    assert refused.code == "provider.not_installed"
    assert str(refused).endswith(install)


def test_an_sdk_that_is_missing_only_when_opened_is_the_same_error(site: Site) -> None:
    site.install(
        "toy-cloud", "toy", "toy_provider", "def open_provider(settings, uuid):\n    import not_there_at_all\n"
    )
    assert refusal().code == "provider.not_installed"


@pytest.mark.parametrize("code", ["", "open_provider = 3\n"])
def test_an_entry_point_without_a_function_is_refused(code: str, site: Site) -> None:
    site.install("toy-cloud", "toy", "toy_provider", code)
    assert refusal().code == "provider.broken"


def test_detects_the_cloud_by_the_providers_own_word(site: Site) -> None:
    site.install("not-here", "aaa", "elsewhere.provider", TOY)
    site.module("elsewhere.identity", "def detect():\n    return False\n")
    site.install("dumb-cloud", "aab", "dumb_provider", TOY)
    site.install("here-cloud", "aac", "here.provider", "import a_sdk_that_is_not_installed\n")
    site.module("here.identity", "def detect():\n    return True\n")
    assert registry.detect_provider() == "aac"


def test_runs_the_checks_that_stand_beside_the_provider(site: Site) -> None:
    site.install("toy-cloud", "toy", "checked.provider", TOY)
    site.module("checked.checks", "def run(provider, wanted):\n    return [('toy', True, f'{wanted.size_bytes}')]\n")
    opened = registry.open_provider("toy", {}, UUID)
    assert registry.run_checks("toy", opened, WANTED) == [("toy", True, "1000000000")]


def test_a_provider_without_checks_has_none(site: Site) -> None:
    site.install("toy-cloud", "toy", "toy_provider", TOY)
    assert registry.run_checks("toy", registry.open_provider("toy", {}, UUID), WANTED) == []


def test_the_price_list_is_beside_the_provider_and_needs_no_provider(site: Site) -> None:
    site.install("toy-cloud", "toy", "priced.provider", TOY)
    listed = "from elastio.strategy.tariff import PriceList, Tariff\n"
    listed += "def price_list(settings, region):\n    return PriceList((Tariff('EUR', region=region, **settings),))\n"
    listed += "def price(settings, region, spec):\n    return price_list(settings, region).tariffs[0].quote(spec)\n"
    site.module("priced.prices", listed)
    known = registry.price_list("toy", {"per_mb_s_hour": 2.0}, "here")
    assert known is not None
    assert [(t.region, t.per_mb_s_hour) for t in known.tariffs] == [("here", 2.0)]
    quote = registry.price("toy", {"per_mb_s_hour": 2.0}, "here", WANTED)
    assert quote is not None
    assert quote.price_per_hour == 256.0


def test_a_provider_without_a_price_list_has_none(site: Site) -> None:
    site.install("toy-cloud", "toy", "toy_provider", TOY)
    assert registry.price_list("toy", {}) is None
    assert registry.price("toy", {}, "", WANTED) is None


@pytest.mark.parametrize("name", ["aws", "openstack", "sim"])
def test_every_provider_of_this_distribution_has_a_price_list(name: str) -> None:
    assert registry.price_list(name, {}) is not None


def test_the_aws_provider_of_this_distribution_loads_and_has_both() -> None:
    package = registry.providers()["aws"].module.rpartition(".")[0]
    assert callable(import_module(f"{package}.identity").detect)
    assert callable(import_module(f"{package}.checks").run)
    assert callable(registry.open_provider("aws", {"region": "us-east-1"}, UUID).quote)
