"""What policies and releases are called in settings."""

from __future__ import annotations

from typing import Final

PIP430: Final = "pip430"
PIP430_STASH: Final = "pip430-stash"
FIFO_TTL: Final = "fifo-ttl"
MAGNETAR: Final = "magnetar"

POLICY_NAMES: Final = (PIP430, PIP430_STASH, FIFO_TTL, MAGNETAR)
PROFILE_NAMES: Final = ("4.2", "5.0")
