"""Names the two reasons why values are not taken into a type."""

from __future__ import annotations


class NotExactError(ValueError):
    """Some value of the array has no equal in the target type; the text says why."""


class OtherMeaningError(Exception):
    """No value of the source type is a value of the target type; the text gives advice."""
