"""Machines that QEMU emulates or virtualizes."""
