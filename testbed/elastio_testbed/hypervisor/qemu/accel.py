"""The choice of QEMU's accelerator."""

import os
from pathlib import Path


def accelerator(wanted: str | None = None) -> str:
    """Value of QEMU's -accel: `wanted`, else $ELASTIO_ACCEL, else KVM where it works, else TCG."""
    chosen = wanted or os.environ.get("ELASTIO_ACCEL")
    if chosen is None:
        chosen = "kvm" if _kvm_works(Path("/proc/cpuinfo").read_text()) else "tcg"
    return "tcg,thread=multi" if chosen == "tcg" else chosen


def _kvm_works(cpuinfo: str) -> bool:
    # /dev/kvm alone is not enough: it also exists on hosts whose processor cannot run an ordinary guest.
    return has_virtualization(cpuinfo) and os.access("/dev/kvm", os.R_OK | os.W_OK)


def has_virtualization(cpuinfo: str) -> bool:
    """Whether /proc/cpuinfo's text shows a processor with Intel's or AMD's virtualization."""
    flags = (line.split(":", 1)[1].split() for line in cpuinfo.splitlines() if line.startswith("flags"))
    return any({"vmx", "svm"} & set(line) for line in flags)
