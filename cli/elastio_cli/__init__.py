"""The command `elastio`: one file per command. Commands ask the agent, wait and print; they decide nothing.

Imports `elastio_setup` and everything of `elastio`, which does not import it. Commands of other source roots and the
simulator are entry points (`elastio.registry`).
"""
