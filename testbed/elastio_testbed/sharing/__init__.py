"""Experiments with two applications that share one adaptive device: how much each gets, and how long it waits."""
