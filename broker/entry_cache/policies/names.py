"""The names of policies and releases in settings."""

from __future__ import annotations

from typing import Final

PIP430: Final = "pip430"
"""The removal queue of PIP-430 (`RemovalQueue`), the default."""
PIP430_STASH: Final = "pip430-stash"
"""The first revision of PIP-430 (`Pip430Stash`)."""
FIFO_TTL: Final = "fifo-ttl"
"""The rules before PIP-430 (`RemovalQueue` without requeues)."""
MAGNETAR: Final = "magnetar"
"""Our own policy (`Magnetar`)."""

POLICY_NAMES: Final = (PIP430, PIP430_STASH, FIFO_TTL, MAGNETAR)
PROFILE_NAMES: Final = ("4.2", "5.0")
