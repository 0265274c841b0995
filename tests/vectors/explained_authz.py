"""Recorded answers to roles that this broker does not give, each with the reason.

Law of the place: as in `explained.py`. An entry says where this broker is stricter than Apache and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXPLAINED_ROLES: Final[Mapping[str, str]] = {}
EXPLAINED_COMMANDS: Final[Mapping[str, str]] = {}
