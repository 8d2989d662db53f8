"""The simulator: the real agent loop on a simulated kernel, cloud and clock.

Shipped because operators plan with it (`elastio simulate`, `elastiod --sim`) and because every test uses it: one
model whose errors can be found, instead of many mocks. Everything follows from its inputs and one random seed; it
reads no real clock and starts no thread.

Imports the agent, the core and the ports; never the host.
"""
