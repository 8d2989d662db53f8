"""The imperative shell: the loop that observes, decides, records and acts, and the process around it.

May import everything of `elastio` but metrics.
"""
