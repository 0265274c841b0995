"""ProducerAccess: shared, exclusive, waiting and fenced producers, and their epochs (PIP-68)."""

from __future__ import annotations

import pytest

from broker.service.producer import AccessMode, Producer
from broker.service.topics.producer_access import ProducerAccess
from foundation.model.errors import BrokerError, MetadataError, ProducerBusy, ProducerFenced
from tests.fakes.ports import FakeProducerPort
from tests.fakes.stage import Stage, port_of

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAIT, FENCE = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING


def producer(name: str, mode: AccessMode, epoch: int | None = None) -> Producer:
    class Topic:
        name = "t"

    return Producer(
        Topic(),  # type: ignore[arg-type]
        FakeProducerPort(),
        producer_id=0,
        name=name,
        access_mode=mode,
        topic_epoch=epoch,
    )


def presence(*present: tuple[str, AccessMode]) -> ProducerAccess:
    access = ProducerAccess()
    for name, mode in present:
        access.enter(producer(name, mode))
    return access


@pytest.mark.parametrize(
    ("mode", "alone", "beside_shared", "beside_exclusive"),
    [
        (SHARED, "in", "in", ProducerBusy),
        (EXCLUSIVE, "in", ProducerFenced, ProducerFenced),
        (WAIT, "in", "waits", "waits"),
        (FENCE, "in", "in", "in"),
    ],
)
def test_access_mode_decides_as_the_table_says(
    mode: AccessMode, alone: object, beside_shared: object, beside_exclusive: object
) -> None:
    for access, expected in (
        (presence(), alone),
        (presence(("a", SHARED), ("b", SHARED)), beside_shared),
        (presence(("a", EXCLUSIVE)), beside_exclusive),
    ):
        newcomer = producer("new", mode)
        present = list(access.producers.values())
        if isinstance(expected, type):
            with pytest.raises(expected):
                access.enter(newcomer)
            assert list(access.producers.values()) == present
            assert not newcomer.waiting
            continue
        access.enter(newcomer)
        assert newcomer.waiting == (expected == "waits")
        assert (access.producers.get("new") is newcomer) == (expected == "in")
        assert all(one.ended == (mode is FENCE) for one in present)
        assert (access.exclusive is newcomer) == (expected == "in" and mode is not SHARED)


def test_producer_name_is_refused_while_it_is_in_use() -> None:
    access = presence(("a", SHARED))
    with pytest.raises(ProducerBusy, match="already connected"):
        access.enter(producer("a", SHARED))
    access.leave(access.producers["a"])
    access.enter(producer("a", SHARED))


def test_exclusive_producer_gets_a_higher_epoch_unless_it_brings_the_current_one() -> None:
    access = ProducerAccess()
    epochs = []
    for _ in range(3):
        one = producer("a", EXCLUSIVE)
        access.enter(one)
        epochs.append(one.topic_epoch)
        access.leave(one)
    assert epochs == [0, 1, 2]
    back = producer("a", EXCLUSIVE, epoch=2)
    access.enter(back)
    assert back.topic_epoch == 2, "who comes back with the current epoch keeps it"
    access.leave(back)
    with pytest.raises(ProducerFenced, match="epoch has already moved"):
        access.enter(producer("a", EXCLUSIVE, epoch=1))


def test_producer_that_waits_longest_gets_access_next() -> None:
    access = presence(("a", EXCLUSIVE))
    first, second, third = (producer(name, WAIT) for name in "bcd")
    for one in (first, second, third):
        access.enter(one)
    assert access.leave(first) is None, "one that waited may leave"
    heir = access.leave(access.producers["a"])
    assert heir is second
    assert (second.waiting, second.topic_epoch) == (False, 1)
    assert access.waiting == (third,)


async def test_fencing_fails_waiting_producers_and_marks_present_ones() -> None:
    stage = Stage()
    topic = await stage.open()
    inside = await stage.producer(topic, "a", EXCLUSIVE)
    waiting = await stage.producer(topic, "b", WAIT)
    await stage.producer(topic, "c", FENCE)
    assert port_of(waiting).events == ["failed ProducerFenced"]
    assert port_of(inside).events == []
    assert inside.ended
    await topic.remove_producer(inside)
    await topic.remove_producer(waiting)
    assert list(topic.access.producers) == ["c"]


async def test_access_epoch_survives_unloading_the_topic() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.producer(topic, "a", EXCLUSIVE)
    await stage.run(stage.registry.unload(topic.name))
    topic = await stage.open()
    assert (await stage.producer(topic, "a", EXCLUSIVE)).topic_epoch == 1


async def test_exclusive_producer_is_refused_when_its_epoch_cannot_be_stored() -> None:
    stage = Stage()
    topic = await stage.open()
    stage.metadata.refusing = True
    with pytest.raises(MetadataError):
        await stage.producer(topic, "a", EXCLUSIVE)
    assert (topic.access.producers, topic.access.exclusive) == ({}, None)
    stage.metadata.refusing = False
    await stage.producer(topic, "a", EXCLUSIVE)


async def test_waiting_producers_are_refused_when_the_epoch_cannot_be_stored() -> None:
    stage = Stage()
    topic = await stage.open()
    holder = await stage.producer(topic, "a", EXCLUSIVE)
    heirs = [await stage.producer(topic, name, WAIT) for name in "bc"]
    stage.metadata.refusing = True
    await topic.remove_producer(holder)
    assert [port_of(heir).events for heir in heirs] == [["failed MetadataError"]] * 2
    assert (topic.access.producers, topic.access.waiting) == ({}, ())


async def test_waiting_producer_is_told_when_it_gets_access() -> None:
    stage = Stage()
    topic = await stage.open()
    holder = await stage.producer(topic, "a", EXCLUSIVE)
    heir = await stage.producer(topic, "b", WAIT)
    await topic.remove_producer(holder)
    assert port_of(heir).events == ["ready 1"]
    with pytest.raises(BrokerError):
        await stage.producer(topic, "c")
