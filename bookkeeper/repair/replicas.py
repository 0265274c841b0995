"""Asks bookies whether they have the entries that a ledger's metadata says.

A bookie that is not registered is lost and is not asked. Of the others the first and the last entry of each fragment are
read: a bookie that came back with an empty disk lacks both. BookKeeper's LedgerChecker does the same by default
(auditorLedgerVerificationPercentage=0).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial

from bookkeeper.client.digest import Digest
from bookkeeper.client.result_codes import OK
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.repair.fragments import Fragment
from foundation.model.errors import PersistenceError


async def missing_positions(
    ledger_id: int, fragment: Fragment, digest: Digest, bookies: Bookies, registered: Collection[str]
) -> tuple[int, ...]:
    """Returns the positions of a closed fragment whose bookies lack their entries.

    A bookie that cannot give them counts as well: a reader gets none from it either.
    """
    needed = [(position, fragment.edges_at(position)) for position in range(len(fragment.segment.members))]
    kept = await asyncio.gather(
        *(
            _has_all(ledger_id, edges, fragment.segment.members[position], digest, bookies, registered)
            for position, edges in needed
        )
    )
    return tuple(position for (position, _), has_all in zip(needed, kept, strict=True) if not has_all)


async def _has_all(
    ledger_id: int,
    entry_ids: Collection[int],
    bookie: str,
    digest: Digest,
    bookies: Bookies,
    registered: Collection[str],
) -> bool:
    if not entry_ids:
        return True
    if bookie not in registered:
        return False
    found = await asyncio.gather(
        *(read_entry(bookies, bookie, ledger_id, entry_id, digest) for entry_id in entry_ids)
    )
    return all(stored is not None for stored in found)


async def read_entry(
    bookies: Bookies, bookie: str, ledger_id: int, entry_id: int, digest: Digest
) -> bytes | None:
    """Returns the stored entry of one bookie, None when it is missing there, damaged or not to be had."""
    answered: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    bookies.client(bookie).read(ledger_id, entry_id, partial(_settle, answered, ledger_id, entry_id, digest))
    return await answered


def _settle(
    answered: asyncio.Future[bytes | None],
    ledger_id: int,
    entry_id: int,
    digest: Digest,
    rc: int,
    stored: bytes,
) -> None:
    if answered.done():  # The caller was cancelled.
        return
    answered.set_result(stored if rc == OK and is_good(ledger_id, entry_id, stored, digest) else None)


def good_count(ledger_id: int, entry_ids: Sequence[int], stored: Sequence[bytes], digest: Digest) -> int:
    """Returns how many of the stored entries are good, from the first one on."""
    check = digest.check
    good = 0
    try:
        for entry_id, entry in zip(entry_ids, stored, strict=False):
            check(ledger_id, entry_id, entry)
            good += 1
    except PersistenceError:
        return good
    return good


def is_good(ledger_id: int, entry_id: int, stored: bytes, digest: Digest) -> bool:
    """Returns True when the stored bytes are those that the writer sealed for this entry."""
    try:
        digest.check(ledger_id, entry_id, stored)
    except PersistenceError:
        return False
    return True
