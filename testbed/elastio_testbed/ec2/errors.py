"""The error that the endpoint raises in the laboratory's own calls."""


class SettingError(ValueError):
    """An invalid fault, delay, scale or instance; nothing was changed."""
