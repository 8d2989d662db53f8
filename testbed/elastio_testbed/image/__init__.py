"""The guest image of the laboratory: a Debian root with elastio installed, built without booting anything.

Two layers, each cached under the digest of its inputs: the Debian root, which depends on the package list, and the
image itself, which depends on the checkout. Both exist also with more packages, such as the applications of the larger
experiments (TOOLS).
"""

from elastio_testbed.image.build import GuestImage, build_guest_image, checkout_package
from elastio_testbed.image.cloud import build_cloud_image
from elastio_testbed.image.debian import TOOLS
from elastio_testbed.image.tools import ImageError

__all__ = ["TOOLS", "GuestImage", "ImageError", "build_cloud_image", "build_guest_image", "checkout_package"]
