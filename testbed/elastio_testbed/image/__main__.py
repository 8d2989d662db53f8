"""Build the guest image unless the cache has it: `python3 -m elastio_testbed.image`.

It needs the standard library only, so that it can run while the virtual environment is made.
"""

import sys

from elastio_testbed.image.build import build_guest_image
from elastio_testbed.image.tools import ImageError

if __name__ == "__main__":
    try:
        build_guest_image()
    except ImageError as error:
        sys.exit(f"error: {error}")
