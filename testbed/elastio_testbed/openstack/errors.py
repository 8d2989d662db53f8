"""The error of the laboratory's OpenStack."""


class LabError(Exception):
    """The laboratory's OpenStack cannot be installed, started, used or stopped."""
