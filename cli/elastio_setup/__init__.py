"""What an operator needs before the agent runs: a backing device, and checks of the machine.

Imports the host, the configuration, and of the agent what reads its journal.
"""
