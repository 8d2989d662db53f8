"""What the pages tell root to type survives a reboot, removes all but what it names, and uses no stranger's name."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "docs/how-to/install.md"
PACKAGE = ROOT / "docs/how-to/install-the-package.md"
PAGES = (ROOT / "README.md", INSTALL, PACKAGE)
SYSTEM = ROOT / "systemd"
SOURCES = ("elastio", "cli", "providers", "simulator", "adviser", "calibration", "systemd")
TEXTS = [
    *ROOT.glob("*.md"),
    *(p for p in ROOT.glob("docs/**/*.md") if "results" not in p.parts and "adr" not in p.parts),
    *(p for name in SOURCES for p in (ROOT / name).rglob("*.*")),
]
# What pip would look up on the public index, where nobody of this project owns the name.
FROM_INDEX = re.compile(r"""elastio\[|pip3? install (?:-\S+ )*['"]?elastio\b""")
EDITED = "/etc/systemd/system/elastiod.service.d/override.conf"  # by `systemctl edit elastiod`
MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")


def commands(text: str) -> list[str]:
    """The lines of a page that are to be typed."""
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def section(page: Path, heading: str) -> str:
    return page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_device_is_mounted_again_after_a_reboot_that_does_not_wait_for_it(page: Path) -> None:
    line = next(c for c in commands(page.read_text()) if "/etc/fstab" in c or c.startswith("elastio setup "))
    if line.startswith("elastio setup "):
        return  # its own tests show that it writes such a line
    assert " nofail " in line
    assert "by-uuid" in line


def test_first_command_works_on_an_image_whose_lists_are_old() -> None:
    first = next(c for c in commands(INSTALL.read_text()) if "apt-get install" in c)
    assert first.startswith("apt-get update && ")


def test_nobody_is_told_to_install_a_name_that_this_project_does_not_own() -> None:
    texts = {p: p.read_text(errors="replace") for p in TEXTS if p.suffix in (".md", ".py", ".service", ".toml")}
    assert [str(p.relative_to(ROOT)) for p, text in texts.items() if FROM_INDEX.search(text)] == []


@pytest.mark.runs_programs
def test_removal_leaves_only_what_it_names(tmp_path: Path) -> None:
    shipped = "\n".join(
        c for c in commands(section(INSTALL, "2. What belongs to the system")) if c.startswith(("cp", "S="))
    )
    removed = "\n".join(c for c in commands(section(INSTALL, "Remove")) if c.startswith("rm"))
    made = ("/opt/elastio/bin", "/var/lib/elastio", "/var/cache/elastio/botocore", "/etc/elastio")
    made_files = (
        "/usr/bin/elastio",
        "/usr/bin/elastiod",
        "/etc/elastio/elastio.toml",
        "/var/lib/elastio/journal.jsonl",
        EDITED,
    )
    parents = ("/etc/udev/rules.d", "/etc/systemd/system/timers.target.wants", str(Path(EDITED).parent), "/usr/bin")
    script = "\n".join(
        ["set -e", *(f"mkdir -p {d}" for d in (*made, *parents)), *(f"touch {f}" for f in made_files), shipped, removed]
    )
    script = script.replace("/opt/elastio/share/elastio/systemd", str(ROOT / "systemd"))
    for top in ("/etc/", "/opt/", "/usr/bin", "/var/"):
        script = re.sub(rf"(?<![\w.]){top}", f"{tmp_path}{top}", script)
    subprocess.run(["bash", "-c", script], check=True)
    left = {str(p).removeprefix(str(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    named = re.findall(r"`(/[^`\s]+)`", section(INSTALL, "Remove").partition("| left |")[2])
    assert [f for f in left if not any(f == name or f.startswith(f"{name}/") for name in named)] == []
    assert {"/var/lib/elastio/journal.jsonl", "/etc/modules-load.d/elastio.conf"} <= left


def expanded(word: str) -> list[str]:
    """The braces of a word, as bash expands them."""
    braces = re.search(r"\{([^{}]*)\}", word)
    if braces is None:
        return [word]
    parts = braces[1].split(",")
    return [each for part in parts for each in expanded(word[: braces.start()] + part + word[braces.end() :])]


def installed() -> set[str]:
    """What a checkout puts into /etc and the package has elsewhere. The rules of nftables are the reader's."""
    units, rules = ("/etc/systemd/system", ("*.service", "*.timer")), ("/etc/udev/rules.d", ("*.rules",))
    flat = {f"{to}/{p.name}" for to, kinds in (units, rules) for kind in kinds for p in SYSTEM.glob(kind)}
    return flat | {f"/etc/{p.relative_to(SYSTEM)}" for p in SYSTEM.glob("*.d/*") if p.parent.name != "nftables.d"}


def test_nothing_of_a_checkout_is_left_to_take_precedence_over_the_package() -> None:
    lines = commands(section(PACKAGE, "From a checkout to the package"))
    removed = [each for line in lines if line.startswith("rm ") for word in line.split()[1:] for each in expanded(word)]
    assert [path for path in installed() if not any(fnmatch(path, each) for each in removed)] == []
    assert [
        each for each in removed if each.startswith("/etc/") and not any(fnmatch(p, each) for p in installed())
    ] == []
    assert not any(fnmatch(str(Path(EDITED).parent), each) for each in removed)  # rm fails on a directory


def test_flaw_has_one_address_and_the_page_that_promises_leads_to_it() -> None:
    control = (ROOT / "debian/control").read_text()
    maintainer = re.search(r"^Maintainer: .*<(.+)>$", control, re.MULTILINE)
    assert maintainer is not None
    policy = (ROOT / "SECURITY.md").read_text()
    assert set(MAIL.findall(policy)) <= {maintainer[1]}
    assert "debian/control" in policy
    assert "SECURITY.md" in (ROOT / "docs/explanation/safety.md").read_text()
