"""Machines on user-mode Linux: the kernel is a process of the host, and its programs run at native speed."""
