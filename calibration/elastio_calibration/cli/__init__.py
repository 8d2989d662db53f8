"""The verbs `calibrate`, `predict` and `plan` of the command `elastio`."""
