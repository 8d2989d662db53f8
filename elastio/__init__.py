"""elastio rides the I/O peaks of a Linux VM on a short-lived fast cloud volume, cached by bcache."""

__version__ = "0.1.0"
