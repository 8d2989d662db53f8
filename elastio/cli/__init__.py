"""The command `elastio`: one file per command. Commands ask the agent, wait and print; they decide nothing.

Imports everything; nothing imports it.
"""
