"""Which ledgers are copied, and which leave the bookies."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.managed_ledger.ledger_list import LedgerInfo, OffloadContext, OffloadPlace
from broker.managed_ledger.offload.rules import ledgers_to_drop, ledgers_to_offload
from broker.managed_ledger.settings import OffloadRules

COPIED = OffloadContext(UUID(int=1), OffloadPlace("filesystem"), complete=True, at_ms=1_000)


def ledgers() -> list[LedgerInfo]:
    """Three closed ledgers of 100 bytes and the current one of 50."""
    closed = [LedgerInfo(number, 10, 100, 1_000 * number) for number in (1, 2, 3)]
    return [*closed, LedgerInfo(4, 5, 50, None)]


@pytest.mark.parametrize(
    ("threshold", "due"),
    [(-1, []), (0, [1, 2, 3]), (49, [1, 2, 3]), (150, [1, 2]), (249, [1, 2]), (250, [1]), (350, [])],
)
def test_the_oldest_ledgers_above_the_size_are_due(threshold: int, due: list[int]) -> None:
    assert ledgers_to_offload(ledgers(), OffloadRules(threshold_bytes=threshold), 10_000) == due


@pytest.mark.parametrize(
    ("seconds", "due"), [(-1, []), (0, [1, 2, 3]), (8, [1, 2]), (9, [1]), (10, []), (1000, [])]
)
def test_old_ledgers_are_due(seconds: int, due: list[int]) -> None:
    assert ledgers_to_offload(ledgers(), OffloadRules(threshold_s=seconds), 10_000) == due


def test_a_begun_copy_is_due_again_and_a_complete_one_never() -> None:
    infos = ledgers()
    infos[0].offload = COPIED
    infos[1].offload = COPIED._replace(complete=False)
    assert ledgers_to_offload(infos, OffloadRules(threshold_bytes=0), 10_000) == [2, 3]


@pytest.mark.parametrize(
    ("lag_ms", "now_ms", "dropped"),
    [(0, 1_000, True), (500, 1_499, False), (500, 1_500, True), (-1, 10**12, False)],
)
def test_a_copied_ledger_leaves_the_bookies_after_the_lag(lag_ms: int, now_ms: int, dropped: bool) -> None:
    infos = ledgers()
    infos[0].offload = COPIED
    infos[1].offload = COPIED._replace(complete=False)
    infos[2].offload = COPIED._replace(bookkeeper_deleted=True)
    found = ledgers_to_drop(infos, OffloadRules(deletion_lag_ms=lag_ms), now_ms)
    assert [info.ledger_id for info in found] == [1] * dropped
