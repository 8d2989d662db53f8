"""The commands `elastio simulate`, `audit`, `observe` and `profile` (entry points `elastio.commands`)."""
