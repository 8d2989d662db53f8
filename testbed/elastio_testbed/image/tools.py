"""Running the programs an image is built with."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

# Enough of a failed program's output to see the reason, which Debian's tools print last.
_TAIL_LINES = 15


class ImageError(Exception):
    """The image could not be built; the message carries the end of the failing program's output."""


def run(argv: Sequence[str], *, timeout_s: float, stdin: str | None = None) -> str:
    """Run `argv` to its end and return what it printed on standard output.

    Raises ImageError when the program is missing, fails, or takes longer than `timeout_s`.
    """
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise ImageError(f"{argv[0]} is not installed on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"{argv[0]} did not finish within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_TAIL_LINES:])
        raise ImageError(f"{argv[0]} failed with exit code {done.returncode}:\n{tail}")
    return done.stdout


def chroot(root: Path, argv: Sequence[str], *, timeout_s: float) -> str:
    """Run `argv` inside `root` with a clean environment; needs to be root."""
    env = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"]
    return run(["chroot", str(root), *env, *argv], timeout_s=timeout_s)
