"""The control socket: the protocol, its server and client, the status document, and the exit codes of the programs.

Imports nothing of the agent but `elastio.errors` and `elastio.codec`, so that the client stays small.
"""
