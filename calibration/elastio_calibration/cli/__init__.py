"""The commands `elastio calibrate`, `elastio predict` and `elastio plan` (entry points `elastio.commands`)."""
