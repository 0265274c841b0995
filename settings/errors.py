"""What can go wrong with settings: a line that the user has to change.

The text is the whole answer (where, key, value, what is allowed), fit to be printed alone.
"""

from __future__ import annotations


class SettingsError(Exception):
    """`str(error)` is one line; a command prints it and exits with status 2."""

    @property
    def line(self) -> str:
        return str(self)


class NotDynamic(SettingsError):
    """The key does not exist, or does not change while the process runs."""
