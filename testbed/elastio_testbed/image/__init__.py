"""The guest image of the laboratory: a Debian root with elastio installed, built without booting anything.

Two layers, each kept in a cache under the digest of what went into it: the Debian root, which changes when
the package list does, and the image proper, which changes with the checkout. Each also exists with the
applications of the larger experiments (`tools`).
"""

from elastio_testbed.image.build import GuestImage, build_guest_image
from elastio_testbed.image.cloud import build_cloud_image
from elastio_testbed.image.tools import ImageError

__all__ = ["GuestImage", "ImageError", "build_cloud_image", "build_guest_image"]
