"""The functional core: values, decisions and safety rules. Pure.

Imports `elastio.codec`, `elastio.errors`, `elastio.units`, itself, and of `elastio.strategy` what `pyproject.toml`
lists. No clock, no random, no log, no file, no process.
"""
