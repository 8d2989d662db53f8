"""Programs that run inside the guest, with Debian's own Python and nothing else."""
