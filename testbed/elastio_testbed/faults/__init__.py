"""The fault campaign: faults injected into a real guest and its cloud, and the count of what was lost. See `plan`."""
