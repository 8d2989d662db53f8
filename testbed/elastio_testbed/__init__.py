"""The laboratory: real bcache in QEMU guests, against an honest cloud endpoint."""
