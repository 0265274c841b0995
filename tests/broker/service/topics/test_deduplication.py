"""Deduplication: sequence ids that are pushed, stored, failed, and loaded after a restart (PIP-6)."""

from __future__ import annotations

import pytest

from broker.service.internal_cursors import DEDUPLICATION_CURSOR
from broker.service.topics.deduplication import Deduplication, DuplicateVerdict
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import NotAllowed, PersistenceError
from tests.fakes.messages import message
from tests.fakes.sends import send
from tests.fakes.stage import Stage, port_of

NEW, DUPLICATE, UNKNOWN = DuplicateVerdict.NEW, DuplicateVerdict.DUPLICATE, DuplicateVerdict.UNKNOWN


def test_judge_tells_new_duplicate_and_unknown_messages_apart() -> None:
    known = Deduplication({}, producers_max=10)
    assert known.judge("p", 5, 0) is NEW
    assert known.judge("p", 5, 0) is UNKNOWN, "pushed, and it may still fail"
    known.stored("p", 5, 0)
    assert known.judge("p", 5, 0) is DUPLICATE
    assert known.judge("p", 4, 0) is DUPLICATE
    assert known.judge("q", 4, 0) is NEW
    assert known.judge("p", 6, 9) is NEW, "a batch"
    assert known.judge("p", 9, 0) is UNKNOWN
    known.failed()
    assert known.judge("p", 6, 9) is NEW, "a failed message may be sent again"


def test_chunked_message_counts_as_pushed_with_its_last_chunk() -> None:
    known = Deduplication({}, producers_max=10)
    assert known.judge("p", 1, 0, last_chunk=False) is NEW
    assert known.judge("p", 1, 0, last_chunk=False) is NEW
    assert known.judge("p", 1, 0, last_chunk=True) is NEW
    known.stored("p", 1, 0)
    assert known.judge("p", 1, 0, last_chunk=False) is DUPLICATE


def test_stored_message_is_a_duplicate_though_it_was_never_judged() -> None:
    known = Deduplication({}, producers_max=10)
    known.stored("p", 7, 0)
    assert known.judge("p", 7, 0) is DUPLICATE


def test_forget_drops_the_oldest_disconnected_producers_above_the_limit() -> None:
    known = Deduplication(dict.fromkeys("abcd", 1), producers_max=2)
    known.forget({"a"})
    assert list(known.sequence_ids_to_save()) == ["a", "d"]


async def published(stage: Stage, topic: PersistentTopic, *sequence_ids: int) -> list[tuple[int, int, int]]:
    producer = await stage.producer(topic, "p")
    for number in sequence_ids:
        send(producer, number, message(sequence_id=number))
    await stage.settle()
    await topic.remove_producer(producer)
    return port_of(producer).receipts


async def test_duplicate_gets_a_receipt_without_a_position() -> None:
    stage = Stage(deduplication=True)
    topic = await stage.open()
    await published(stage, topic, 0, 1)
    assert topic.last_sequence_id("p") == 1
    receipts = await published(stage, topic, 1, 2)
    assert sorted(receipts) == [(1, -1, -1), (2, receipts[-1][1], 2)]
    assert topic.ledger.ledgers.entries == 3


@pytest.mark.parametrize("snapshot_every", [1, 1000])
async def test_reopened_topic_knows_its_sequence_ids(snapshot_every: int) -> None:
    stage = Stage(deduplication=True, deduplication_snapshot_entries=snapshot_every)
    topic = await stage.open()
    await published(stage, topic, 0, 1, 2)
    await stage.run(stage.registry.unload(topic.name))
    topic = await stage.open()
    assert topic.last_sequence_id("p") == 2
    assert (await published(stage, topic, 2))[0][1:] == (-1, -1)


async def test_all_chunks_of_a_duplicate_message_are_dropped() -> None:
    stage = Stage(deduplication=True)
    topic = await stage.open()
    producer = await stage.producer(topic, "p")
    for _ in range(2):
        for number in range(3):
            send(producer, 0, message(chunk=(number, 3)), chunk=True)
        await stage.settle()
    assert topic.ledger.ledgers.entries == 3
    assert [receipt[1:] for receipt in port_of(producer).receipts[3:]] == [(-1, -1)] * 3


@pytest.mark.parametrize("snapshot_every", [1, 1000])
@pytest.mark.parametrize("reopened", [False, True])
async def test_chunked_message_that_was_cut_is_stored_when_it_is_sent_again(
    snapshot_every: int, reopened: bool
) -> None:
    """Also after the topic was opened again, where Apache Pulsar counts a message as stored by any of its chunks."""
    stage = Stage(deduplication=True, deduplication_snapshot_entries=snapshot_every)
    topic = await stage.open()
    cut = await stage.producer(topic, "p")
    for number in range(2):
        send(cut, 0, message(chunk=(number, 3)), chunk=True)
    await stage.settle()
    await topic.remove_producer(cut)
    if reopened:
        await stage.run(stage.registry.unload(topic.name))
        topic = await stage.open()
    assert topic.last_sequence_id("p") == -1
    again = await stage.producer(topic, "p")
    for _ in range(2):
        for number in range(3):
            send(again, 0, message(chunk=(number, 3)), chunk=True)
        await stage.settle()
    stored = [receipt[1] >= 0 for receipt in port_of(again).receipts]
    assert stored == [True] * 3 + [False] * 3
    assert topic.last_sequence_id("p") == 0


async def test_message_is_refused_while_its_first_copy_is_unconfirmed() -> None:
    stage = Stage(deduplication=True)
    topic = await stage.open()
    producer = await stage.producer(topic, "p")
    for _ in range(2):
        send(producer, 0, message())
    await stage.settle()
    [(sequence_id, error)] = port_of(producer).refusals
    assert sequence_id == 0
    assert isinstance(error, PersistenceError)
    assert len(port_of(producer).receipts) == 1


async def test_deduplication_cursor_is_reserved_and_deleted_when_deduplication_ends() -> None:
    stage = Stage(deduplication=True)
    topic = await stage.open()
    await published(stage, topic, 0)
    with pytest.raises(NotAllowed):
        await stage.consume(topic, subscription=DEDUPLICATION_CURSOR)
    await stage.run(stage.registry.unload(topic.name))
    await stage.namespaces.set_policy("public/default", "deduplicationEnabled", False)
    topic = await stage.open()
    assert DEDUPLICATION_CURSOR not in topic.ledger.cursors.by_name, "it would hold back trimming for ever"
