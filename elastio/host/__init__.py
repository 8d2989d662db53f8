"""The machine's side: one module per interface of the kernel, udev and systemd.

Only `sysfs` writes to /sys, only `commands` runs programs. Imports the values of `elastio.core`, `errors`, `units` and
`whole_file`.
"""
