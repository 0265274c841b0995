"""Strategy: the rule by which a topic accepts a new version of its schema; `compatibility` applies it."""

from __future__ import annotations

import enum


class Strategy(enum.StrEnum):
    """Pulsar's SchemaCompatibilityStrategy, with the words of configuration and admin API."""

    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    """No second version."""
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    """Any version, also one of another type."""
    BACKWARD = "BACKWARD"
    """The new schema reads data of the newest version."""
    FORWARD = "FORWARD"
    """The newest version reads data of the new schema."""
    FULL = "FULL"
    """Both read data of the other."""
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    """The new schema reads data of every version."""
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    """Every version reads data of the new schema."""
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    """Both, with every version."""

    @property
    def transitive(self) -> bool:
        """True when all versions are compared."""
        return self.endswith("_TRANSITIVE")

    @property
    def reads_old(self) -> bool:
        """True when the new schema must read data of older ones."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def reads_new(self) -> bool:
        """True when older schemas must read data of the new one."""
        return self.startswith(("FORWARD", "FULL"))
