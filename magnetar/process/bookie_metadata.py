"""The entries that a bookie must have by the cluster's metadata, for `magnetar bookie index rebuild`.

The tool compares them with the entries that it found. A closed ledger with all of them has lost nothing, so it does not
enter limbo. The bookie itself reads no more of a ledger's metadata than its state and its members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bookie_stub.base.errors import BookieError, RegistrationError
from bookie_stub.disk.cookie import instance_of
from bookkeeper.ensembles.placement import write_set
from protocol.ledger_metadata import LedgerMetadata, LedgerMetadataError, LedgerState, decode

if TYPE_CHECKING:
    from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers
    from bookie_stub.config.settings import BookieSettings
    from bookie_stub.tools.index_rebuild import ClosedEntries


@contextlib.contextmanager
def closed_entries(
    settings: BookieSettings, cookie: Path, say: Callable[[str], None]
) -> Iterator[ClosedEntries | None]:
    """Yields a function from ledgers to their entries on this bookie.

    `cookie`: the file with the bookie's cookie. Yields None without a metadata store, and for one that cannot be reached,
    which `say` reports.
    """
    if settings.metadata is None:
        yield None
        return
    from bookie_stub.cluster.registration import ledgers_to_read

    with contextlib.ExitStack() as stack:
        try:
            opened = ledgers_to_read(settings.metadata, instance_of(cookie), settings.metadata_timeout_s)
            ledgers = stack.enter_context(opened)
        except (BookieError, OSError) as error:
            say(f"the metadata store is not asked: {error}")
            yield None
            return
        yield _Asked(ledgers, settings.bookie_id, say)


class _Asked:
    """`ClosedEntries` from ZooKeeper."""

    def __init__(self, ledgers: ZooKeeperLedgers, bookie_id: str, say: Callable[[str], None]) -> None:
        self._ledgers = ledgers
        self._bookie_id = bookie_id
        self._say = say

    def __call__(self, ledger_ids: Collection[int]) -> Iterator[tuple[int, Iterable[int]]]:
        """Yields nothing when the cluster's answer cannot be trusted; then every such ledger enters limbo."""
        self._say(f"asking the metadata store for {len(ledger_ids)} ledgers")
        try:
            values = self._ledgers.values(ledger_ids)
        except RegistrationError as error:
            self._say(f"the metadata store is not believed: {error}")
            return
        for ledger_id, value in values:
            with contextlib.suppress(LedgerMetadataError):  # Nothing is known of this ledger then.
                metadata = decode(value)
                if metadata.state is LedgerState.CLOSED:
                    yield ledger_id, entries_on(self._bookie_id, metadata)


def entries_on(bookie_id: str, metadata: LedgerMetadata) -> Iterator[int]:
    """Yields the entries of a closed ledger whose write sets have the bookie, ascending."""
    after = metadata.last_entry_id + 1
    for segment, following in zip(metadata.segments, (*metadata.segments[1:], None), strict=True):
        if bookie_id not in segment.members:
            continue
        position = segment.members.index(bookie_id)
        end = after if following is None else min(following.first_entry_id, after)
        for entry_id in range(segment.first_entry_id, end):
            if position in write_set(entry_id, len(segment.members), metadata.write_quorum):
                yield entry_id
