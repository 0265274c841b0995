"""The error of access records: one cannot be read, or cannot be written as the settings ask."""

from __future__ import annotations


class RecordError(Exception):
    """One sentence that names the setting or the file, and the remedy where there is one."""
