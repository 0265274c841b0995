"""Principal: the roles of a connection or a request."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """The role that authentication found, and the role on whose behalf a proxy speaks."""

    role: str | None = None
    """The authenticated role; None without authentication."""
    original: str | None = None
    """The role for which a proxy asks; None for a client that connects directly. Only proxy roles may name one."""


NOBODY = Principal()
"""The principal of every client of a broker without authentication."""
