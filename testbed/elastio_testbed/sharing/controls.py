"""The controls under which two applications share a device, and why a guest may not have one. Pure."""

from __future__ import annotations

NONE, STRICT, WEIGHTS, BFQ, SHARES = "no control", "strict partition", "weights alone", "BFQ", "shares"
WHY_ABSENT = {
    WEIGHTS: "the guest's kernel keeps no weights of cgroups (no io.weight)",
    BFQ: "the guest's kernel has no scheduler BFQ for the volume",
}
