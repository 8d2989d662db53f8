"""The lowest libraries that pyproject.toml allows, and those of Debian 13: every command's help, every module.

`python -m tests.lowest DIRECTORY [SET...]` builds the wheel, installs it in one new virtual environment below DIRECTORY
for each set of libraries, and runs the programs there. A minimum that is too low is found here and nowhere else: the
lock files have new releases only. pip gets the libraries from the index that it is configured for, once: they are kept
in the laboratory's cache directory, with what they themselves needed on that day.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elastio_testbed.image.cache import cache_directory, cached, digest_of, prune

ROOT = Path(__file__).parents[1]
# Debian 13's own packages of what the agent and its providers import.
DEBIAN_13 = ("click==8.1.8", "boto3==1.37.9", "openstacksdk==4.4.0", "psutil==7.0.0", "pyudev==0.24.3")
# Sets of libraries that are kept: those of two states of pyproject.toml.
KEPT = 6
# Prints every command, with its group before it.
COMMANDS = """
import click
from elastio_cli.main import main
def walk(command, words):
    print(*words)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            walk(command.get_command(context, name), [*words, name])
walk(main, ["elastio"])
"""
# Imports every module of the named packages.
IMPORTS = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(found.name)
"""


def lowest(project: Mapping[str, object], extras: Sequence[str]) -> tuple[str, ...]:
    """`NAME==LOWEST` of every requirement. Raises ValueError for one that does not have the form `NAME>=LOWEST`."""
    found = [project["dependencies"], *(_table(project["optional-dependencies"])[extra] for extra in extras)]
    return tuple(_pin(str(each)) for requirements in found if isinstance(requirements, list) for each in requirements)


def _table(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not a table")
    return value


def _pin(requirement: str) -> str:
    name, above, version = requirement.partition(">=")
    if not above or not version.replace(".", "").isdigit():
        raise ValueError(f"{requirement}: write it as NAME>=LOWEST")
    return f"{name}=={version}"


def build(directory: Path) -> Path:
    """The wheel of these sources, built without the network. Raises CalledProcessError."""
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    subprocess.run([*pip, "--wheel-dir", str(directory), str(ROOT)], check=True)
    return next(directory.glob("elastio-*.whl"))


def entry_of(pins: Sequence[str]) -> Path:
    """Where these libraries are kept: named by all that pip's choice depends on but the index."""
    digest = digest_of([*pins, sys.version, sysconfig.get_platform()])
    return cache_directory() / f"lowest-{digest}"


def libraries(pins: Sequence[str], python: Path) -> Path:
    """A directory of these libraries only, from the cache or, for this Python, the index. Raises CalledProcessError."""

    def install(target: Path) -> None:
        pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile")
        subprocess.run([*pip, "--target", str(target), *pins], check=True)

    entry = cached(entry_of(pins), install)
    prune(entry.parent, "lowest-*", keep=KEPT)
    return entry


class Environment:
    """A virtual environment with the wheel and these libraries only."""

    def __init__(self, directory: Path, wheel: Path, pins: Sequence[str]) -> None:
        self._python = directory / "bin" / "python"
        venv.create(directory, symlinks=True)
        packages = next((directory / "lib").glob("python*/site-packages"))
        (packages / "libraries.pth").write_text(f"{libraries(pins, self._python)}\n")
        pip = (sys.executable, "-m", "pip", "--python", str(self._python), "install", "--quiet")
        subprocess.run([*pip, "--no-compile", "--no-deps", str(wheel)], check=True)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Its Python with these arguments."""
        command = [str(self._python), "-I", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def failures(self, packages: Sequence[str]) -> Iterator[str]:
        """One text for each command without help, and for modules that cannot be imported."""
        imported = self.run("-c", IMPORTS, *packages)
        if imported.returncode:
            yield f"import of {', '.join(packages)}:\n{imported.stderr}"
        listed = self.run("-c", COMMANDS)
        if listed.returncode:
            yield f"the list of commands:\n{listed.stderr}"
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            yield from filter(None, threads.map(self._without_help, [*listed.stdout.splitlines(), "elastiod"]))

    def _without_help(self, command: str) -> str:
        program, *words = command.split()
        shown = self.run(str(self._python.with_name(program)), *words, "--help")
        is_shown = shown.returncode == 0 and shown.stdout.startswith("Usage:")
        return "" if is_shown else f"{command} --help: {shown.returncode}\n{shown.stderr}"


def main(directory: Path, *chosen: str) -> int:
    """Exit code: 0 if every command has its help in every environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    besides = ("adviser", "aws", "cli", "openstack", "setup", "sim")
    modules = ("elastio", *(f"elastio_{name}" for name in besides))
    sets = {
        "lowest": (lowest(project, ("aws", "openstack")), modules),
        "calibration": (lowest(project, ("calibration",)), ("elastio", "elastio_calibration")),
        # Without numpy and the like, which the package only suggests, the help of every command has to work.
        "debian-13": (DEBIAN_13, modules),
    }
    shutil.rmtree(directory, ignore_errors=True)
    wheel, failed = build(directory), 0
    for name, (pins, packages) in {name: sets[name] for name in chosen or sets}.items():
        failures = list(Environment(directory / name, wheel, pins).failures(packages))
        failed += len(failures)
        print(f"{name}: {' '.join(pins)}: {len(failures)} failures", *failures, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
