"""When a cache pays, how large and how fast, how long it stays, and what was spent. Pure.

Imports `elastio.codec`, `elastio.units`, itself, and of `elastio.core` its values and what else `pyproject.toml` lists.
Whoever may import the core may import the strategy.
"""
