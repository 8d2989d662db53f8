"""What the laboratory's own calls to the endpoint are refused with."""


class SettingError(ValueError):
    """A fault, a delay or an instance that does not make sense; nothing was changed."""
