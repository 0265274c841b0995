"""What a peer can do wrong on the wire. Whoever raises one of these has nothing more to say: close the connection."""

from __future__ import annotations


class ProtocolError(Exception):
    """The bytes break the protocol; the message names what was seen and what would have been right."""
