"""Which kernels have what the agent needs, read from their configurations: the table of docs/reference/kernels.md.

    python -m elastio_testbed.kernels DEB...    read Debian's packages linux-config-*, write kernels.json and the table
    python -m elastio_testbed.kernels           write the table again from kernels.json

`apt-get download linux-config-6.1` fetches such a package on Debian 12, `linux-config-6.12` on Debian 13. It holds the
configuration of each flavour as built, so no kernel has to be installed. Kernels of other distributions are in
kernels.json by hand, each with its source; what is in no source that was read stays unknown.
"""

from __future__ import annotations

import json
import lzma
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/kernels.md"
DATA = PAGE.with_suffix(".json")
BEGIN, END = "<!-- table: kernels -->", "<!-- end: kernels -->"
# Name of the package -> distribution.
DISTRIBUTIONS = {"linux-config-6.1": "Debian 12", "linux-config-6.12": "Debian 13"}
# Architecture, feature set and flavour: config.amd64_rt_amd64.xz is of linux-image-rt-amd64.
FLAVOUR = re.compile(r"config\.\w+_(?:none|(\w+))_([\w-]+)\.xz$")
OPTION = re.compile(r"^(?:(CONFIG_\w+)=(.*)|# (CONFIG_\w+) is not set)$", re.MULTILINE)
BCACHE, THROTTLING = "CONFIG_BCACHE", "CONFIG_BLK_DEV_THROTTLING"
MEANING = {"m": "module", "y": "built in", "n": "no"}
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Kernel:
    """`bcache`, `throttling`: the values `m`, `y`, `n` of the two options, or `unknown`. `source` says who says so."""

    distribution: str
    kernel: str
    bcache: str
    throttling: str
    source: str


def options(text: str) -> dict[str, str]:
    """The options of a kernel configuration; `n` for one that is not set."""
    return {m[1] or m[3]: "n" if m[3] else m[2].strip('"') for m in OPTION.finditer(text)}


def read(package: str, version: str, configurations: Iterable[tuple[str, str]]) -> Iterator[Kernel]:
    """The kernels of one Debian package, from the names and texts of its files.

    Raises KeyError for a package that is not in DISTRIBUTIONS.
    """
    for name, text in configurations:
        flavour, found = FLAVOUR.search(name), options(text)
        if flavour is None:
            continue
        kernel = f"{version}, {'-'.join(part for part in flavour.groups() if part)}"
        values = (found.get(BCACHE, "n"), found.get(THROTTLING, "n"))
        yield Kernel(DISTRIBUTIONS[package], kernel, *values, f"package {package}")


def table(kernels: Iterable[Kernel]) -> str:
    """The rows of the page, as they are in kernels.json."""
    head = "| distribution | kernel | bcache | I/O limits | source |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(
        f"| {k.distribution} | {k.kernel} | {_said(k.bcache)} | {_said(k.throttling)} | {k.source} |\n" for k in kernels
    )


def _said(value: str) -> str:
    return MEANING.get(value, value)


def with_table(page: str, rows: str) -> str:
    """The page with these rows between its two comments. Raises ValueError if it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{rows}\n{END}{after}"


def kept() -> list[Kernel]:
    """The kernels of kernels.json."""
    return [Kernel(**row) for row in json.loads(DATA.read_text())]


def unpack(package: Path) -> Iterator[Kernel]:
    """The kernels of a downloaded package. Raises CalledProcessError if it is not one."""
    fields = subprocess.run(
        ["dpkg-deb", "-f", package, "Package", "Version"], capture_output=True, text=True, check=True
    ).stdout
    name, version = re.findall(r"^\w+: (.+)$", fields, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        paths = sorted(Path(folder).rglob("config.*.xz"))
        yield from read(name, version, [(path.name, lzma.decompress(path.read_bytes()).decode()) for path in paths])


def main(packages: list[str]) -> None:
    """Replace the rows of the packages' distributions, and write the page."""
    fresh = [kernel for package in packages for kernel in unpack(Path(package))]
    replaced = {kernel.distribution for kernel in fresh}
    kernels = [*fresh, *(kernel for kernel in kept() if kernel.distribution not in replaced)]
    kernels.sort(key=lambda kernel: (kernel.bcache == UNKNOWN, kernel.distribution, kernel.kernel))
    DATA.write_text(json.dumps([asdict(kernel) for kernel in kernels], indent=2) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), table(kernels)))


if __name__ == "__main__":
    main(sys.argv[1:])
