"""What goes wrong in the laboratory's OpenStack: one class, one sentence."""


class LabError(Exception):
    """The OpenStack of the laboratory cannot be made, started or stopped; the message says where to look."""
