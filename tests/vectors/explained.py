"""Recorded scripts whose answers this broker does not give, each with the reason.

Law of the place: an entry says what is missing or different on purpose, docs/compatibility.md says it at
length (a test compares the names), and an entry whose script passes is an error: take it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXPLAINED: Final[Mapping[str, str]] = {}
"""Scenarios of wire/, by name."""

EXPLAINED_REQUESTS: Final[Mapping[str, str]] = {}
"""Records of rest/, by name."""
