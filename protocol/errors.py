"""ProtocolError: a peer broke the wire protocol, and its connection must be closed."""

from __future__ import annotations


class ProtocolError(Exception):
    """Received bytes break the protocol; the text names the bytes and the rule."""
