"""Where the guests' volumes lie while an experiment runs."""

from __future__ import annotations

import os
import tempfile

DEFAULT = "/var/tmp"


def scratch_folder(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """A new folder that goes with its context, in $ELASTIO_SCRATCH or /var/tmp.

    Volumes are files, and what a guest writes reaches the host's page cache. When the host writes it back, a guest may
    stand still for seconds: on a host with a slow disk and memory to spare, measure with a tmpfs (`/dev/shm`).
    """
    return tempfile.TemporaryDirectory(prefix=prefix, dir=os.environ.get("ELASTIO_SCRATCH", DEFAULT))
