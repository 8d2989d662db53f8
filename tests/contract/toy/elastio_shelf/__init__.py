"""Volumes from a shelf: the provider that `docs/how-to/write-a-provider.md` writes. Its cloud is a folder."""
