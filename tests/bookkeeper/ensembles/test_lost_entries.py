"""LostEntries: proof of a loss, one line each, reads that end before a lost entry."""

from __future__ import annotations

import pytest

from bookkeeper.ensembles.lost_entries import ATTEMPTS_BEFORE_SKIP, LostEntries
from broker.managed_ledger.redelivery_reads import neighbours
from foundation.model.errors import (
    BrokerError,
    EntryDamaged,
    NoSuchEntry,
    NoSuchLedger,
    PersistenceError,
    ReadTimedOut,
)
from foundation.model.position import Position
from foundation.model.range_set import EntryRange


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (EntryDamaged("x"), True),
        (NoSuchEntry("x"), True),
        (NoSuchLedger("x"), True),
        (ReadTimedOut("x"), False),
        (PersistenceError("x"), False),
    ],
)
def test_only_answers_of_all_bookies_prove_a_loss(error: BrokerError, lost: bool) -> None:
    entries = LostEntries("t")
    entries.read_failed(5, 7, error)
    assert ((5, 7) in entries.positions) is lost


def test_lost_entry_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    entries = LostEntries("public/default/persistent/t")
    for _ in range(3):
        entries.read_failed(5, 7, EntryDamaged("its digest does not fit"))
    (record,) = caplog.records
    assert "entry 5:7 of public/default/persistent/t is lost: its digest does not fit" in record.getMessage()


def test_reads_end_before_a_lost_entry_and_ask_for_it_alone() -> None:
    entries = LostEntries("t")
    entries.read_failed(5, 7, EntryDamaged("x"))
    assert entries.before(5, 0, 9) == 6
    assert entries.before(5, 7, 9) == 7
    assert entries.before(5, 8, 9) == 9
    assert entries.before(4, 0, 9) == 9


def test_lost_entry_may_be_skipped_after_several_failed_reads() -> None:
    entries = LostEntries("t")
    for number in range(ATTEMPTS_BEFORE_SKIP):
        assert not entries.may_be_skipped((5, 7)), number
        entries.read_failed(5, 7, EntryDamaged("x"))
    assert entries.may_be_skipped((5, 7))


def test_entry_that_can_be_read_again_is_no_longer_lost() -> None:
    entries = LostEntries("t")
    entries.read_failed(5, 7, EntryDamaged("x"))
    entries.read_failed(5, 9, EntryDamaged("x"))
    entries.read_succeeded(EntryRange(5, 0, 8))
    assert [tuple(one) for one in entries.positions.ranges()] == [(5, 9, 9)]


def test_lost_entries_are_redelivered_in_a_read_of_their_own() -> None:
    entries = LostEntries("t")
    entries.read_failed(5, 3, EntryDamaged("x"))
    positions = [Position(5, entry_id) for entry_id in range(1, 6)]
    assert neighbours(positions, entries.positions) == [
        EntryRange(5, 1, 2),
        EntryRange(5, 3, 3),
        EntryRange(5, 4, 5),
    ]
    assert neighbours(positions) == [EntryRange(5, 1, 5)]
