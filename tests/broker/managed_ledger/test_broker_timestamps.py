"""Broker timestamps (PIP-70) never run backwards within a topic, whatever the clock of the broker does."""

from __future__ import annotations

import pytest

from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list, encode_ledger_list
from broker.managed_ledger.settings import ManagedLedgerSettings
from protocol.broker_entry_metadata import ClockClamps, EntryStamp, decode
from tests.broker.managed_ledger.ledger_fakes import NAME, Recorder, World, fill, recorder

BACK_MS = 3_600_000


def times(ledger: ManagedLedger) -> list[int | None]:
    return [decode(entry.header).broker_timestamp_ms for entry in recorder(ledger).added]


def test_stamp_keeps_the_last_time_and_counts_while_the_clock_is_behind_it() -> None:
    clock = iter([1000, 990, 999, 1000, 1001])
    clamps = ClockClamps()
    stamp = EntryStamp(timestamp=True, index=False, now_ms=lambda: next(clock), clamps=clamps)
    blocks = [
        *stamp.stamp(1, 1),
        *stamp.stamp(1, 3),
        *stamp.stamp(2, 1),
        *stamp.stamp(1, 1),
        *stamp.stamp(1, 1),
    ]
    assert [decode(block).broker_timestamp_ms for block in blocks] == [1000] * 6 + [1001]
    assert clamps.entries == 4


def test_stamp_without_timestamps_resumes_nothing() -> None:
    stamp = EntryStamp(timestamp=False, index=True, now_ms=lambda: 1000)
    stamp.resume(2000)
    assert (stamp.last_ms, decode(stamp.stamp(1, 1)[0]).broker_timestamp_ms) == (-1, None)


@pytest.mark.parametrize("end", ["close", "crash", "crash of an empty ledger"])
async def test_open_goes_on_after_the_time_of_the_last_entry(world: World, end: str) -> None:
    ledger = await world.open(entries_per_ledger_max=3)
    await fill(ledger, 3)
    if end != "crash of an empty ledger":
        # The list tells the time of the ledger before alone.
        world.wall += 100
        await fill(ledger, 1)
    last_ms = world.wall
    if end == "close":
        # The ledger ends an hour after its last entry, and an idle topic holds no time back.
        world.wall += BACK_MS
        await ledger.close()
    again = world if end == "close" else world.after_crash()
    again.wall = last_ms - BACK_MS
    ledger = await again.open()
    await fill(ledger, 2)
    again.wall = last_ms + 5
    await fill(ledger, 1)
    assert times(ledger) == [last_ms, last_ms, last_ms + 5]


@pytest.mark.parametrize("lost", [False, True])
async def test_open_reads_the_last_entry_of_a_list_that_says_no_time(world: World, lost: bool) -> None:
    ledger = await world.open()
    await fill(ledger, 2)
    last_ms = world.wall
    await ledger.close()
    await forget_time(world)
    if lost:
        world.ledgers.stored.clear()
    world.wall -= BACK_MS
    ledger = await world.open()
    await fill(ledger, 1)
    # An entry that storage cannot return tells nothing, and the topic opens all the same.
    assert times(ledger) == [world.wall if lost else last_ms]


async def forget_time(world: World) -> None:
    """Makes the stored list one of an older version."""
    found = await world.metadata.get(managed_ledger_key(NAME))
    assert found is not None
    info = decode_ledger_list(found.value)
    assert info.properties.pop("brokerTimestamp")
    await world.metadata.put(managed_ledger_key(NAME), encode_ledger_list(info), found.version)


async def test_topic_without_timestamps_reads_and_stores_nothing(world: World) -> None:
    stamp = EntryStamp(timestamp=False, index=True, now_ms=lambda: world.wall)
    for opened in range(2):
        ledger = await ManagedLedger.open(NAME, world.environment, ManagedLedgerSettings(), stamp=stamp)
        assert not world.ledgers.batch_reads
        ledger.context.listener = Recorder()
        await fill(ledger, 1)
        await ledger.close()
        assert ledger.properties == {"index": str(opened)}
