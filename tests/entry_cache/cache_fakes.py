"""Entries and caches for the tests of this room."""

from __future__ import annotations

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.reader import Reader
from foundation.model.entry import Buffer, Entry
from foundation.model.position import Position
from tests.fakes.whole_cache import WholeCache

SECOND = 1_000_000_000
READER = Reader("reader", 1)


class Acknowledging:
    """A log's cursor, of which the cache knows nothing but what it has acknowledged."""

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        self.mark_delete_position = Position(ledger_id, entry_id)


def new_manager(
    size_bytes_max: int = 1 << 40,
    *,
    profile: str = "4.2",
    ttl_ns: int = SECOND,
    watermark: float = 0.9,
    copy_entries: bool = False,
    extend_recently_accessed: bool = True,
    pinned_ratio_max: float = 0.0,
    policy: str = "pip430",
) -> WholeCache:
    return WholeCache(
        EntryCacheSettings(
            size_bytes_max=size_bytes_max,
            profile=profile,
            ttl_ns=ttl_ns,
            watermark=watermark,
            copy_entries=copy_entries,
            extend_recently_accessed=extend_recently_accessed,
            pinned_ratio_max=pinned_ratio_max,
            policy=policy,
        )
    )


def new_entry(entry_id: int, body: Buffer = b"0123456789", ledger_id: int = 1) -> Entry:
    return Entry(ledger_id, entry_id, b"", body, 1)


def new_run(first: int, last: int, ledger_id: int = 1) -> list[Entry]:
    return [new_entry(entry_id, ledger_id=ledger_id) for entry_id in range(first, last + 1)]


def ids(entries: list[Entry]) -> list[int]:
    return [entry.entry_id for entry in entries]
