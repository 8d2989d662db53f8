"""What an adaptive cache would save, for somebody who has installed no agent: simulate, audit, observe, profile.

Reads recordings of a load, watches a device or a program, and compares what each set-up would have cost. `page` draws
what was saved, from the agent's ledger. Imports the simulator, the core, the accounting, and of the host what reads.
Nothing of the agent imports it: its commands are entry points.
"""
