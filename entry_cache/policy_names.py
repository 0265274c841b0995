"""The names of the cache's policies: the choices of `entryCachePolicy`.

`entry_cache/policies/make.py` makes the policy of each name. The names stand in a module of their own, without
imports, because the table of keys, the cache and the pipeline's replays all need them.
"""

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
"""All of them, in the order in which help texts show them."""
