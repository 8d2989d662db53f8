"""When a cache pays, how large and how fast, how long it stays, and what was spent. Pure.

Imports `elastio.codec`, `elastio.units`, itself, and of `elastio.core` the values (`model`, `moved`, `phase`, `policy`)
and what the governor asks of a flush. Whoever may import the core may import the strategy.
"""
