"""Factors between units: of time in ns, of memory in bytes."""

from __future__ import annotations

from typing import Final

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_SECOND: Final = 1_000_000_000
NS_PER_MINUTE: Final = 60 * NS_PER_SECOND
MS_PER_SECOND: Final = 1_000
MS_PER_MINUTE: Final = 60 * MS_PER_SECOND
SECONDS_PER_MINUTE: Final = 60
SECONDS_PER_DAY: Final = 86_400
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
