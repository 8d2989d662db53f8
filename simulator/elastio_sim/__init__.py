"""The simulator: the real agent loop on a simulated kernel, cloud and clock.

It is shipped because operators plan with it (`elastio simulate`, `elastiod --sim`) and because the tests use it: one
model whose errors can be found, instead of many mocks. Every run follows from its inputs and one random seed. It reads
no real clock and starts no thread.

Imports the agent, the core and the ports; never the host.
"""
