"""The one exception of the launcher: something that the user can put right."""

from __future__ import annotations


class UsageError(Exception):
    """One line that says what is wrong and what to type; tfhvdrun prints it and exits with 2."""
