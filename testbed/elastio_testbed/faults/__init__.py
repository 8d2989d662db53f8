"""The fault campaign: what goes wrong on purpose in a real guest, and the count of what was lost. See `plan`."""
