"""What is wrong with a record, or with the wish to make one."""

from __future__ import annotations


class RecordError(Exception):
    """One sentence that names the setting or the file, and the remedy where there is one."""
