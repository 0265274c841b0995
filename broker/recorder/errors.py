"""Errors of access records and of their settings."""

from __future__ import annotations


class RecordError(Exception):
    """One sentence that names the setting or the file, and the remedy where there is one."""
