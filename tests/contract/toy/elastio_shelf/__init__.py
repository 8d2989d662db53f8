"""Volumes from a shelf: the example provider of `docs/how-to/write-a-provider.md`. Its cloud is a directory."""
