"""A replay repeats the record and names the first difference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.active_cursors import ActiveCursors
from entry_cache.entry_cache import EntryCache
from entry_cache.listener import CursorChange, Redelivery, StorageRead
from entry_cache.observe import ledger_logs as ledger_logs_module
from entry_cache.observe.cache_events import CacheEvent, Op
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.recorded import Recorded
from entry_cache.observe.replay import Replay
from entry_cache.observe.totals import totals_of
from foundation.model.entry import Entry
from foundation.model.position import Position
from tests.entry_cache.cache_fakes import Acknowledging, new_entry, new_run
from tests.fakes.whole_cache import WholeCache

MS = 1_000_000
SETTINGS = EntryCacheSettings(size_bytes_max=100, watermark=0.5, ttl_ns=10 * MS, policy="pip430")


class Recording:
    """A manager with one log, whose events are kept as a recorder would write them."""

    def __init__(self, settings: EntryCacheSettings = SETTINGS, continue_ns: int = 0) -> None:
        self.now = 0
        self.rows: list[CacheEvent] = []
        self.names: dict[int, str] = {0: ""}
        decisions = Decisions(0, lambda: self.now)
        decisions.listen(self.rows.append)
        self.manager = WholeCache(settings, decisions)
        self.cache: EntryCache = self.manager.open("log")
        self.reader = self.cache.reader("sub")
        self.cursors = ActiveCursors(continue_ns, 0)
        self.cache.attach_cursors(self.cursors, 0, counts_reads=True)
        self.cursors.add("sub", Position(1, 0), Acknowledging(1, -1))
        self.cache.listener.cursor_changed(CursorChange.ADDED, self.cache, self.reader, Position(1, 0))
        self.cache.listener.cursor_changed(
            CursorChange.ACKNOWLEDGED, self.cache, self.reader, Position(1, -1)
        )

    def append(self, entries: list[Entry]) -> None:
        self.cache.listener.appended(self.cache, entries, self.now)
        self.cache.insert_run(entries, 1, self.now)

    def leave(self, *, delete: bool) -> None:
        self.cursors.remove("sub", self.now)
        self.cache.listener.cursor_changed(
            CursorChange.LEFT, self.cache, self.reader, Position(1, -1), self.now
        )
        if delete:
            self.cursors.forget("sub")
            self.cache.listener.cursor_changed(
                CursorChange.FORGOTTEN, self.cache, self.reader, Position(1, -1)
            )

    def fetch(self, entries: list[Entry], expected_reads: int) -> None:
        self.cache.listener.fetched(self.cache, entries, expected_reads, self.now)
        self.cache.insert_run(entries, expected_reads, self.now)

    def record(self) -> list[Recorded]:
        found = []
        for at_ns, op, log, reader, ledger_id, first, entries, size, detail, who, _ in self.rows:
            if op == Op.READER:
                self.names[reader] = who[0]
                continue
            settings = who[0] if op == Op.SETTINGS else ""
            found.append(
                Recorded(
                    at_ns,
                    Op(op),
                    log,
                    self.names[reader],
                    ledger_id,
                    first,
                    entries,
                    size,
                    detail,
                    settings=settings,
                )
            )
        return found


def replay_of(record: list[Recorded], settings: EntryCacheSettings = SETTINGS) -> Replay:
    replay = Replay(settings)
    replay.feed(record)
    replay.finish()
    return replay


def some_life(recording: Recording) -> None:
    recording.append(new_run(0, 4))
    recording.cache.read_run(recording.reader, 1, 0, 2, 1000)
    recording.now = 5 * MS
    recording.append(new_run(5, 12))
    recording.manager.run_pending(recording.now)
    recording.now = 30 * MS
    recording.manager.tick(recording.now)


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        replace(SETTINGS, profile="5.0"),
        replace(SETTINGS, policy="pip430-stash", ttl_max_ns=15 * MS),
        replace(SETTINGS, policy="fifo-ttl"),
        replace(SETTINGS, policy="magnetar"),
    ],
    ids=lambda settings: f"{settings.policy} {settings.profile}",
)
def test_replay_refuses_the_recorded_duplicates(settings: EntryCacheSettings) -> None:
    """A refused entry changes the count of the present one differently under each policy."""
    recording = Recording(settings)
    recording.append(new_run(0, 2))
    recording.fetch([new_entry(at) for at in (1, 2, 3, 4)], 3)
    recording.manager.expect_redelivery(
        recording.reader, [entry for at in (1, 4) if (entry := recording.cache.peek(1, at))]
    )
    recording.now = 12 * MS
    recording.manager.tick(recording.now)
    replay = replay_of(recording.record(), settings)
    assert str(replay.difference) == "None"
    assert replay.totals == replay.recorded_totals == totals_of(recording.manager)
    assert replay.totals["refused"] == 2


def test_replay_applies_changed_settings_in_order() -> None:
    recording = Recording()
    recording.append(new_run(0, 4))
    recording.manager.reconfigure(replace(SETTINGS, ttl_ns=100 * MS))
    recording.now = 50 * MS
    recording.manager.tick(recording.now)
    assert recording.manager.entries == 5
    replay = replay_of(recording.record())
    assert str(replay.difference) == "None"
    assert replay.manager.entries == 5


def test_replay_forgets_deleted_cursors() -> None:
    """Only the policy that looks at positions waits for one that has left."""
    settings = replace(SETTINGS, policy="magnetar")
    recording = Recording(settings, continue_ns=100 * MS)
    recording.append(new_run(0, 4))
    recording.leave(delete=True)
    recording.now = 20 * MS
    recording.manager.tick(recording.now)
    assert recording.manager.entries == 0
    record = recording.record()
    assert str(replay_of(record, settings).difference) == "None"
    assert replay_of(spoiled(record, Op.CURSOR_FORGOTTEN), settings).manager.entries == 5


def test_replay_takes_pinned_bytes_from_the_record() -> None:
    """The replay has no bodies, so it takes the pinned bytes from the record."""
    settings = replace(SETTINGS, policy="magnetar", size_bytes_max=40_000, pinned_ratio_max=0)
    recording = Recording(settings)
    for first in range(0, 40, 2):
        buffer = memoryview(bytearray(10_000))
        recording.append([new_entry(first, buffer[:10]), new_entry(first + 1, buffer[10:20])])
        recording.manager.run_pending(recording.now)
    assert recording.manager.stats.size_evictions
    replay = replay_of(recording.record(), settings)
    assert str(replay.difference) == "None"
    assert replay.totals == totals_of(recording.manager)


def test_replay_ignores_reads_that_end_after_the_log_closed() -> None:
    recording = Recording()
    cache = recording.cache
    cache.listener.asked_storage(StorageRead.MISS, cache, recording.reader, 1, 0, 3)
    recording.manager.remove("log")
    cache.listener.fetched(cache, new_run(0, 2), -1, recording.now)
    cache.count_arrived(StorageRead.MISS, recording.reader, new_run(0, 2))
    replay = replay_of(recording.record())
    assert str(replay.difference) == "None"
    assert replay.totals == replay.recorded_totals == totals_of(recording.manager)


@pytest.mark.parametrize("policy", ["magnetar", "pip430"])
def test_ledger_logs_keep_ledgers_with_cached_entries(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of cached entries must name their log; those of others may lack it."""
    monkeypatch.setattr(ledger_logs_module, "CLOSED_LEDGERS_MAX", 3)
    settings = replace(SETTINGS, size_bytes_max=10_000, policy=policy)
    recording = Recording(settings)
    recording.append([first := new_entry(0)])
    for ledger_id in range(2, 20):
        recording.append([new_entry(0, ledger_id=ledger_id)])
    for ledger_id in range(20, 40):
        recording.cache.listener.fetched(
            recording.cache, [new_entry(0, ledger_id=ledger_id)], -1, recording.now
        )
    recording.manager.expect_redelivery(recording.reader, [first])
    listener = recording.cache.listener
    listener.redelivery_changed(Redelivery.POSTPONED, recording.reader, [first])
    recording.manager.mark_delivered([first])
    dropped = recording.cache.present([(1, 0)])
    listener.redelivery_changed(Redelivery.DROPPED, recording.reader, dropped)
    recording.cache.invalidate_before(Position(19, 0))
    record = recording.record()
    assert [event for event in record if not event.log and event.op is not Op.SETTINGS] == []
    replay = replay_of(record, settings)
    assert str(replay.difference) == "None"
    assert replay.totals == replay.recorded_totals == totals_of(recording.manager)


def test_ledger_logs_keep_the_newest_closed_ledgers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_logs_module, "CLOSED_LEDGERS_MAX", 3)
    recording = Recording(replace(SETTINGS, size_bytes_max=10_000))
    entries = [new_entry(0, ledger_id=ledger_id) for ledger_id in range(1, 8)]
    for entry in entries:
        recording.append([entry])
    recording.manager.clear()
    recording.manager.mark_delivered(entries)
    delivered = [(event.ledger_id, event.log) for event in recording.record() if event.op is Op.DELIVER]
    assert delivered == [(1, ""), (2, ""), (3, ""), (4, ""), (5, "log"), (6, "log"), (7, "log")]


# What is otherwise


def spoiled(record: list[Recorded], op: Op, **changes: Any) -> list[Recorded]:
    """With the first event of the kind changed, or left out."""
    at = next(place for place, event in enumerate(record) if event.op is op)
    changed = [record[at]._replace(**changes)] if changes else []
    return [*record[:at], *changed, *record[at + 1 :]]


@pytest.mark.parametrize("op", [Op.INSERT, Op.EVICT, Op.REQUEUE, Op.TICK, Op.SIZE_CHECK, Op.HIT, Op.APPEND])
def test_replay_reports_a_missing_event(op: Op) -> None:
    recording = Recording()
    some_life(recording)
    record = recording.record()
    assert replay_of(record).difference is None
    assert replay_of(spoiled(record, op)).difference is not None


@pytest.mark.parametrize(
    ("op", "changes"),
    [
        (Op.EVICT, {"detail": 0}),
        (Op.EVICT, {"entries": 1}),
        (Op.HIT, {"entries": 4}),
        (Op.INSERT, {"size_bytes": 51}),
        (Op.APPEND, {"size_bytes": 100}),
    ],
)
def test_replay_reports_a_changed_event(op: Op, changes: dict[str, int]) -> None:
    recording = Recording()
    some_life(recording)
    assert replay_of(spoiled(recording.record(), op, **changes)).difference is not None


def test_replay_shows_the_first_difference_with_events_before_it() -> None:
    recording = Recording()
    some_life(recording)
    replay = replay_of(spoiled(recording.record(), Op.EVICT, entries=1, size_bytes=10))
    text = str(replay.difference).splitlines()
    assert text[0].startswith("first difference at event ")
    before, broker, repeated = (
        text.index(head) for head in ("  events before:", "  the broker:", "  the replay:")
    )
    assert "SIZE_CHECK" in text[broker - 1]
    assert any("APPEND 1:5 +8 (80 bytes) detail 0 of log" in line for line in text[before:broker])
    assert any("EVICT 1:0 +1 (10 bytes) detail 9" in line for line in text[broker:repeated])
    assert any("EVICT 1:0 +8 (80 bytes) detail 9" in line for line in text[repeated:])


def test_replay_reports_a_recorded_miss_of_a_cached_entry() -> None:
    recording = Recording()
    recording.append(new_run(0, 4))
    record = recording.record()
    record.append(Recorded(0, Op.MISS, "log", "sub", 1, 2, 1, 0, 0))
    difference = replay_of(record).difference
    assert difference is not None
    assert difference.problems == ("in the replay 1 of its entries are cached",)


def test_replay_refuses_a_record_without_its_beginning() -> None:
    recording = Recording()
    recording.append(new_run(0, 4))
    record = [event for event in recording.record() if event.op is not Op.OPEN]
    with pytest.raises(ValueError, match="has no OPEN of log"):
        replay_of(record)


def test_replay_refuses_settings_of_another_version() -> None:
    with pytest.raises(ValueError, match=r"not the settings of this cache: .*'gone'"):
        EntryCacheSettings.from_text('{"size_bytes_max": 1, "gone": 2}')
