"""Programs that build an image."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

# Debian's tools print the reason of a failure last.
_TAIL_LINES = 15
CLEAN_ENV = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8")


class ImageError(Exception):
    """The image cannot be built; the message contains the end of the failed program's output."""


def run(argv: Sequence[str], *, timeout_s: float, stdin: str | None = None) -> str:
    """Run `argv` and return its standard output.

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
    """Run `argv` inside `root` with a clean environment; needs root."""
    return run(["chroot", str(root), *CLEAN_ENV, *argv], timeout_s=timeout_s)
