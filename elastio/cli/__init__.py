"""The command `elastio`: one file per noun. Commands ask, show and wait; they decide nothing.

Imports everything; nothing imports it.
"""
