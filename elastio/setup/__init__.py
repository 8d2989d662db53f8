"""What an operator needs before the agent runs: a backing device, a configuration, and a look at the machine.

Imports the host and the configuration.
"""
