"""The functional core: what is known, what is decided, and what must never happen. Pure.

Imports `elastio.units`, `elastio.errors` and itself; no clock, no random, no log, no file, no process.
"""
