"""The functional core: values, decisions and safety rules. Pure.

Imports `elastio.units`, `elastio.errors` and itself; no clock, no random, no log, no file, no process.
"""
