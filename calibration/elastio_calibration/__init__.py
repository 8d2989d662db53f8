"""Predicts the run time and the storage cost of an application: measure, fit, predict, plan.

Measuring (`target`, `live`, `record`) needs only the agent. Fitting and predicting need the `calibration` extra.
"""
