"""The command `elastio`: one file per command. Commands ask the agent, wait and print; they decide nothing.

Imports everything; nothing in `elastio` imports it. Commands of other source roots and the simulator are entry points
(`registry`).
"""
