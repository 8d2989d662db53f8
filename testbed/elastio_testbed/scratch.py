"""The folder of the guests' volumes during an experiment."""

from __future__ import annotations

import os
import tempfile


def scratch_folder(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder in $ELASTIO_SCRATCH or /var/tmp, deleted with its context.

    Volumes are files, and guests write to the host's page cache. While the host writes back, a guest may stall for
    seconds: on a host with a slow disk and enough memory, use a tmpfs (`/dev/shm`) for measurements.
    """
    return tempfile.TemporaryDirectory(prefix=prefix, dir=os.environ.get("ELASTIO_SCRATCH", "/var/tmp"))
