"""The error of this room."""

from __future__ import annotations


class TlsError(Exception):
    """Files or names of which no TLS context can be made; the text is one line with the remedy."""
