"""Errors of the laboratory beside those of its machines, images and clouds."""

from __future__ import annotations

from elastio.errors import ElastioError


class PlanError(ElastioError):
    """The plan cannot be carried out, and nothing was run.

    `code`: `kind` (unknown fault), `scale` (too small), `workload` (cannot be predicted), `profile` (of another plan).
    """


class PlaceholderError(ElastioError):
    """A page lacks the placeholders of a part."""


class LabError(Exception):
    """The laboratory's OpenStack cannot be installed, started, used or stopped."""
