"""Power cuts that take from every disk what was not flushed, and what the disks hold after one."""
