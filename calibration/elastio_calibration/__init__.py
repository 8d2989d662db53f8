"""Know before a run how long it takes and what it costs: measure, fit, predict, plan.

Measuring (`target`, `live`, `record`) needs nothing beside the agent; studying and predicting need the `calibration`
extra.
"""
