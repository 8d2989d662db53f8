"""Power cuts in which every disk loses unflushed writes, and the check of what the disks hold afterwards."""
