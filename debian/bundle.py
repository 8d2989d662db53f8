"""What the Debian package contains beside the agent: Python distributions, man pages, completions, an example.

Theory of operation. The package has to work with the Python of every supported release, 3.11 and newer, so nothing in
it may be compiled. Of the locked requirements, what is compiled, and what speaks TLS or parses what a network sends,
comes from Debian, with Debian's security updates. What Debian has too old a release of is bundled, from wheels without
compiled code, at the locked version (docs/adr/0009-debian-package.md). `debian/rules` calls this file:

    bundle.py wanted LOCK_FILE            print the lock lines of what is bundled
    bundle.py trim MODULES                remove what is not needed at run time
    bundle.py documents MODULES OUTPUT    write man pages, completions and the example configuration
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

BUNDLED = (
    "boto3",
    "botocore",
    "click",
    "dogpile-cache",
    "iso8601",
    "keystoneauth1",
    "openstacksdk",
    "os-service-types",
    "pbr",
    "platformdirs",
    "s3transfer",
    "stevedore",
    "typing-extensions",
)
# Name on PyPI -> Debian package, which debian/control names, or which one that is named there depends on.
FROM_DEBIAN = {
    "certifi": "python3-certifi",
    "cffi": "python3-cryptography",
    "charset-normalizer": "python3-requests",
    "cryptography": "python3-cryptography",
    "decorator": "python3-decorator",
    "idna": "python3-requests",
    "jmespath": "python3-jmespath",
    "jsonpatch": "python3-jsonpatch",
    "jsonpointer": "python3-jsonpatch",
    "psutil": "python3-psutil",
    "pycparser": "python3-cryptography",
    "python-dateutil": "python3-dateutil",
    "pyudev": "python3-pyudev",
    "pyyaml": "python3-yaml",
    "requests": "python3-requests",
    "six": "python3-dateutil",
    "urllib3": "python3-urllib3",
}
NOT_NEEDED = ("setuptools",)  # pbr uses it to build distributions only
# Of the SDK's 400 services: EC2, and those that credentials may come from.
SERVICES = ("ec2", "signin", "sso", "sso-oidc", "sts")
# Notes of pip that name the machine of the build, or list files that are removed.
PIP_NOTES = ("direct_url.json", "INSTALLER", "RECORD", "REQUESTED")
NAME = re.compile(r"([a-z0-9-]+)==")


def wanted(lock: str) -> str:
    """The lines of BUNDLED, hashes included. Raises ValueError if a distribution of the lock file is not judged."""
    lines: list[str] = []
    is_kept = False
    for line in lock.splitlines(keepends=True):
        if line.lstrip().startswith("#"):
            continue
        if found := NAME.match(line):
            is_kept = found[1] in BUNDLED
            if not (is_kept or found[1] in FROM_DEBIAN or found[1] in NOT_NEEDED):
                raise ValueError(f"{found[1]} is locked, but debian/bundle.py does not say where it comes from")
        if is_kept:
            lines.append(line)
    return "".join(lines)


def trim(modules: Path) -> None:
    """Remove programs, tests, the data of services that are not used, and pip's notes."""
    for folder in ("bin", "share"):
        shutil.rmtree(modules / folder, ignore_errors=True)
    for tests in modules.glob("*/tests"):
        shutil.rmtree(tests)
    for service in (modules / "botocore" / "data").iterdir():
        if service.is_dir() and service.name not in SERVICES:
            shutil.rmtree(service)
    for note in [path for name in PIP_NOTES for path in modules.glob(f"*.dist-info/{name}")]:
        note.unlink()


def documents(modules: Path, output: Path) -> None:
    """Write what is generated from the commands and the configuration's schema; `modules` must be importable."""
    sys.path.insert(0, str(modules))
    from elastio import __version__  # noqa: PLC0415  importable from here on
    from elastio.agent.elastiod import main as elastiod  # noqa: PLC0415
    from elastio_cli.main import main as elastio  # noqa: PLC0415

    write_man_pages("elastio", eager(elastio), __version__, output / "man")
    write_man_pages("elastiod", elastiod, __version__, output / "man")
    write_completions(elastio, output / "usr" / "share")
    (output / "elastio.toml").write_text(example(), encoding="utf-8")


def eager(group: click.Group) -> click.Group:
    """The group with all its commands loaded: man pages are written of those that are in its dictionary."""
    import click  # noqa: PLC0415

    context = click.Context(group, info_name=group.name)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return click.Group(
        name=group.name,
        help=group.help,
        params=group.params,
        commands={name: command for name, command in commands.items() if command is not None},
    )


def write_man_pages(name: str, command: click.Command, version: str, folder: Path) -> None:
    """One page for the command and one for each of its subcommands, in section 1."""
    from click_man.core import write_man_pages as write  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    write(name, summarized(command), version=version, target_dir=str(folder))


def summarized(command: click.Command) -> click.Command:
    """The command, its short help set to its first sentence, which is not cut short; so are its subcommands'."""
    text = " ".join((command.help or "").partition("\n\n")[0].split())
    command.short_help = text.partition(". ")[0].rstrip(".")
    for below in getattr(command, "commands", {}).values():
        summarized(below)
    return command


def write_completions(command: click.Command, share: Path) -> None:
    """The completion files of bash, zsh and fish, below `share` where each shell looks for those of packages."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    places = {
        "bash": "bash-completion/completions/elastio",
        "zsh": "zsh/vendor-completions/_elastio",
        "fish": "fish/vendor_completions.d/elastio.fish",
    }
    for shell, place in places.items():
        kind = get_completion_class(shell)
        if kind is None:
            raise ValueError(f"click writes no completion for {shell}")
        path = share / place
        path.parent.mkdir(parents=True, exist_ok=True)
        source = kind(command, {}, "elastio", "_ELASTIO_COMPLETE").source()
        path.write_text(source.strip() + "\n", encoding="utf-8")


def example() -> str:
    """A configuration with every key; the UUID has to be replaced."""
    from elastio.config.text import render  # noqa: PLC0415

    chosen = {
        "device.backing_uuid": "01234567-89ab-cdef-0123-456789abcdef",
        "device.bandwidth_mb_s": 131,
        "cache.bandwidth_mb_s": 500,
        "caps.max_boosts_per_day": 288,
        "provider.name": "aws",
    }
    note = "An example. `elastio init` writes this file for a machine. Commented keys show their defaults."
    return render(chosen, (note,))


def main(arguments: list[str]) -> None:
    match arguments:
        case ["wanted", lock]:
            sys.stdout.write(wanted(Path(lock).read_text(encoding="utf-8")))
        case ["trim", modules]:
            trim(Path(modules))
        case ["documents", modules, output]:
            documents(Path(modules), Path(output))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
