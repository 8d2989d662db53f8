"""Metrics for Prometheus, made from the status document and the ledger, outside the agent. Pure.

May import: accounting, control, core, codec, errors, units.
"""
