"""Rules of tiered storage, each broken on purpose: the simulation must notice it."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

from broker.managed_ledger.ledger_list import LedgerInfo, OffloadContext
from broker.managed_ledger.offload.ledger_offloads import LedgerOffloads
from broker.managed_ledger.trimming import Trimming
from broker.offload.ledger_tier import LedgerTier
from tests.sim.lives.objects import SimObjects


def _copies_without_note() -> object:
    """The list names a copy once it is complete, and not before it begins."""
    plain = LedgerOffloads._note

    async def note(self: LedgerOffloads, info: LedgerInfo, offload: OffloadContext) -> None:
        if offload.complete:
            await plain(self, info, offload)

    return mock.patch.object(LedgerOffloads, "_note", note)


def _copies_are_believed() -> object:
    """The list says `complete` whatever became of the copy."""
    return mock.patch.object(LedgerTier, "copy", mock.AsyncMock())


def _copies_stay() -> object:
    """Objects of trimmed ledgers and deleted topics, and of offloads that were begun, are not deleted."""
    return mock.patch.object(LedgerTier, "delete", mock.AsyncMock())


def _parts_stay() -> object:
    """The deletion of an object leaves what a killed writer of it has uploaded."""
    plain = SimObjects.delete

    async def delete(self: SimObjects, key: str) -> None:
        parts = {key} & self._service.uploads
        await plain(self, key)
        self._service.uploads |= parts

    return mock.patch.object(SimObjects, "delete", delete)


def _copying_is_trimmed() -> object:
    """A ledger is trimmed while it is being copied."""
    return mock.patch.object(Trimming, "copying", property(lambda _: -1, lambda *_: None))


TIER_BREAKAGES: dict[str, Callable[[], object]] = {
    "copies-without-note": _copies_without_note,
    "copies-are-believed": _copies_are_believed,
    "copies-stay": _copies_stay,
    "parts-stay": _parts_stay,
    "copying-is-trimmed": _copying_is_trimmed,
}
