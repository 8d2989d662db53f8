"""The configuration file: its keys, the constraints between them, its text, and the names of the agent's files.

Imports `elastio.core` for the policy that it creates, and `elastio.whole_file`.
"""
