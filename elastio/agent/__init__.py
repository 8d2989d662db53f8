"""The imperative shell: the loop that observes, decides, journals and acts, and the process around it.

Imports the core, the ports, the host and everything beside them; never the simulator or the command line.
"""
