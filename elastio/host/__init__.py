"""The kernel's side: one module per interface. Only `sysfs` writes /sys, only `commands` runs programs.

Imports the core's values, `elastio.ports` and itself.
"""
