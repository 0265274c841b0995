"""The end of a ledger that another process writes, found without fencing it: for readers that follow the ledger.

An entry counts as confirmed when a later entry says so (its LAC), or when Qa bookies of its write set have it. The second
makes the last entry of a silent writer visible. A recovery keeps such an entry, unless a bookie is replaced and the writer
dies before it has copied the entry to the new one; the producer has no receipt then, and sends the message again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from bookkeeper.client.digest import digest_of, entry_id_of, last_add_confirmed, ledger_length
from bookkeeper.client.result_codes import NEGATIVE, OK, error_of
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.ensembles.placement import write_set
from foundation.model.errors import BrokerError, PersistenceError
from protocol.bookie_frame import LAST_ENTRY
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState

_FOUND_MAX = 1000
"""Entries after the LAC that one call looks for; the next call goes on."""


class OpenEnd(NamedTuple):
    """The end of a ledger as far as a reader may go."""

    last_entry: int
    """-1 without an entry."""
    length: int
    """Payload bytes up to there."""


async def find_open_end(
    ledger_id: int, metadata: LedgerMetadata, bookies: Bookies, known: OpenEnd
) -> OpenEnd:
    """Returns the end by this metadata, `known` where nothing has come since. Raises PersistenceError.

    That is raised when no bookie answers.
    """
    if metadata.state is LedgerState.CLOSED:
        return OpenEnd(metadata.last_entry_id, metadata.length)
    search = _Search(ledger_id, metadata, bookies)
    segment = metadata.segments[-1]
    newest = await search.ask(segment.members, LAST_ENTRY)
    highest = max([entry_id_of(one) for one in newest], default=-1)
    confirmed = max([segment.first_entry_id - 1, *(last_add_confirmed(one) for one in newest)])
    for entry_id in range(max(confirmed, known.last_entry) + 1, min(highest, confirmed + _FOUND_MAX) + 1):
        if len(await search.copies(entry_id, segment)) < metadata.ack_quorum:
            break
        confirmed = entry_id
    if confirmed <= known.last_entry:
        return known
    copies = await search.copies(confirmed, metadata.segment_of(confirmed)[0])
    if not copies:
        raise PersistenceError(f"entry {ledger_id}:{confirmed} is confirmed, and no bookie sends it")
    return OpenEnd(confirmed, ledger_length(copies[0]))


class _Search:
    """Asks bookies for entries of one ledger."""

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, bookies: Bookies) -> None:
        self._ledger_id, self._bookies = ledger_id, bookies
        self._write_quorum = metadata.write_quorum
        self._digest = digest_of(metadata.digest_type, metadata.password)

    async def copies(self, entry_id: int, segment: LedgerSegment) -> list[bytes]:
        """Returns the good copies of an entry."""
        places = write_set(entry_id, len(segment.members), self._write_quorum)
        return await self.ask([segment.members[place] for place in places], entry_id)

    async def ask(self, members: list[str] | tuple[str, ...], entry_id: int) -> list[bytes]:
        """Returns the good answers of these bookies. Raises PersistenceError when none answers."""
        answers: list[asyncio.Future[tuple[int, bytes]]] = []
        for address in members:
            answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
            answers.append(answer)
            self._bookies.client(address).read(self._ledger_id, entry_id, partial(_settle, answer))
        outcomes = await asyncio.gather(*answers)
        if all(rc != OK and rc not in NEGATIVE for rc, _ in outcomes):
            raise error_of(outcomes[0][0], f"reading the end of ledger {self._ledger_id}")
        return [stored for rc, stored in outcomes if rc == OK and self._is_whole(stored, entry_id)]

    def _is_whole(self, stored: bytes, entry_id: int) -> bool:
        try:
            self._digest.check(
                self._ledger_id, entry_id_of(stored) if entry_id == LAST_ENTRY else entry_id, stored
            )
        except BrokerError:
            return False
        return True


def _settle(answer: asyncio.Future[tuple[int, bytes]], rc: int, stored: bytes) -> None:
    if not answer.done():
        answer.set_result((rc, stored))
