"""Errors about settings: each text is one line that names the place, the key, the value and the remedy."""

from __future__ import annotations


class SettingsError(Exception):
    """A setting is wrong: a command prints `line` and exits with status 2."""

    @property
    def line(self) -> str:
        """The whole message, without a line break."""
        return str(self)


class MissingProtection(SettingsError):
    """Settings ask for a protection that this process does not have."""


class NotDynamic(SettingsError):
    """The key does not exist, or changes with a restart only."""
