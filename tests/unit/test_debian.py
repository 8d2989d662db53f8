"""The description of the Debian package is consistent with what it packages."""

from __future__ import annotations

import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from debian import bundle

ROOT = Path(__file__).parents[2]
DEBIAN = ROOT / "debian"
LOCK = (ROOT / "requirements/guest.txt").read_text()
LOCKED = set(re.findall(r"^([a-z0-9-]+)==", LOCK, re.MULTILINE))
CONTROL = (DEBIAN / "control").read_text()


def listed(name: str) -> list[str]:
    """The patterns of sources in a file of debhelper."""
    return [line.split()[0] for line in (DEBIAN / name).read_text().splitlines()]


SOURCES = [*listed("elastio.install"), *listed("elastio.examples"), *listed("elastio.docs")]


def depends() -> set[str]:
    text = CONTROL.partition("\nDepends: ")[2].partition("\nSuggests: ")[0]
    return {entry.split()[0].partition(":")[0] for entry in text.replace(",", "\n").splitlines() if entry.strip()}


def project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


FILES = [path for name in ("systemd", "integrations") for path in (ROOT / name).rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_for_the_system_is_in_the_package(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    assert [source for source in SOURCES if fnmatch(name, source) or name.startswith(f"{source}/")]


@pytest.mark.parametrize("source", [source for source in SOURCES if not source.startswith("build/")])
def test_each_file_of_the_package_exists(source: str) -> None:
    assert list(ROOT.glob(source))


@pytest.mark.parametrize(
    ("command", "module"), [("elastio", "elastio_cli.main"), ("elastiod", "elastio.agent.elastiod")]
)
def test_each_program_starts_the_distributions_python_with_the_packages_modules(command: str, module: str) -> None:
    text = (DEBIAN / "launcher" / command).read_text()
    assert text.startswith("#!/usr/bin/python3 -I\n")
    assert 'sys.path.insert(0, "/usr/share/elastio")' in text
    assert f"from {module} import main" in text
    assert project()["scripts"][command] == f"{module}:main"


def test_each_locked_distribution_is_bundled_or_comes_from_debian_or_is_not_needed() -> None:
    judged = [*bundle.BUNDLED, *bundle.FROM_DEBIAN, *bundle.NOT_NEEDED]
    assert sorted(judged) == sorted(LOCKED)


def test_each_debian_package_is_a_dependency() -> None:
    assert set(bundle.FROM_DEBIAN.values()) <= depends()


def test_bundled_distributions_are_installed_at_the_locked_version_by_hash() -> None:
    lines = bundle.wanted(LOCK)
    assert set(re.findall(r"^([a-z0-9-]+)==\S+ \\$", lines, re.MULTILINE)) == set(bundle.BUNDLED)
    assert lines.count("==") == len(bundle.BUNDLED)
    assert set(re.findall(r"--hash=sha256:[0-9a-f]{64}", lines)) <= set(re.findall(r"--hash=\S+", LOCK))
    assert "#" not in lines


def test_a_new_dependency_has_to_be_judged() -> None:
    with pytest.raises(ValueError, match="left-pad"):
        bundle.wanted(LOCK + "left-pad==1.0\n")


def test_bundled_distributions_have_their_licence_in_the_copyright_file() -> None:
    text = (DEBIAN / "copyright").read_text()
    assert [name for name in bundle.BUNDLED if f"{name}/*" not in text] == []
    used = set(re.findall(r"^Copyright:(?:.*\n)(?: +.*\n)*License: (.+)$", text, re.MULTILINE))
    assert used == {"Apache-2.0", "BSD-3-Clause", "Expat", "PSF-2.0"}
    assert all(f"\n\nLicense: {name}\n " in text for name in used)


def test_maintainer_licence_and_oldest_python_are_those_of_the_project() -> None:
    (author,) = project()["authors"]
    assert f"Maintainer: {author['name']} <" in CONTROL
    assert f"python3:any ({project()['requires-python'].replace('>=', '>= ')}~)" in CONTROL
    assert (
        f"Files: *\nCopyright: {author['name']}\nLicense: {project()['license']}\n"
        in (DEBIAN / "copyright").read_text()
    )


def test_trimming_keeps_what_runs(tmp_path: Path) -> None:
    kept = ["sdk/code.py", "sdk-1.dist-info/METADATA", "botocore/data/ec2/service.json", "botocore/data/endpoints.json"]
    gone = ["bin/sdk", "sdk/tests/test.py", "sdk-1.dist-info/direct_url.json", "botocore/data/s3/service.json"]
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    bundle.trim(tmp_path)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(kept)


def test_the_example_is_a_valid_configuration() -> None:
    from elastio.config.schema import parse

    assert parse(tomllib.loads(bundle.example())).provider.name == "aws"


@pytest.mark.runs_programs
def test_an_upgrade_restarts_the_agents_whose_configuration_the_new_release_accepts(tmp_path: Path) -> None:
    """Stand-ins for the programs of the system, and of the release that is installed."""
    units = "elastiod.service", "elastiod@bad.service", "elastiod@good-one.service"
    listed = "".join(f"{unit} loaded active running x\\n" for unit in units)
    programs = {
        "systemctl": f'case "$*" in *list-units*) printf "{listed}" ;; esac',
        "deb-systemd-invoke": f'echo "$*" >>{tmp_path}/invoked',
        "elastio": '[ "$*" != "--config /etc/elastio/bad.toml config check" ] || exit 3',
        "modprobe": "",
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    script = (DEBIAN / "elastio.postinst").read_text().replace("/run/systemd/system", str(tmp_path))
    script = script.replace("/var/lib/elastio", str(tmp_path))
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = ["sh", "-c", script, "postinst", "configure", "0.1"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (run.returncode, "elastiod@bad.service" in run.stderr) == (0, True)
    invoked = (tmp_path / "invoked").read_text().splitlines()
    assert invoked == ["try-restart elastiod.service", "try-restart elastiod@good-one.service"]


def test_the_shutdown_unit_is_never_restarted_by_an_upgrade() -> None:
    """To stop it means to flush the cache and to inhibit boosts, as if the machine went down."""
    postinst = (DEBIAN / "elastio.postinst").read_text()
    assert re.findall(r"list-units .*\n\s+(.+?) \|", postinst) == ["elastiod.service 'elastiod@*.service'"]
    assert re.findall(r"deb-systemd-invoke (.+?) \|\|", postinst) == ['try-restart "$unit"']
    assert "dh_installsystemd --no-start --no-stop-on-upgrade\n" in (DEBIAN / "rules").read_text()
