"""The judgement of one topic in the end of a history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bookkeeper.ensembles.awaited_reads import read_entries
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import PersistenceError
from foundation.model.position import Position
from foundation.model.topic_name import parse_topic_name
from tests.sim.lives.broker import TRIM_S, SimBroker
from tests.sim.lives.clients import Reading
from tests.sim.lives.life import Life
from tests.sim.metadata import Broken

if TYPE_CHECKING:
    from tests.sim.lives.history import History

QUIET_S = 20.0
"""Simulated seconds in which everything that a consumer may get has come."""


def _judge_first_ledger(
    history: History, topic: PersistentTopic, life: Life, subscriptions: Sequence[Subscription]
) -> None:
    """Raises Broken for a ledger that nothing keeps: it would hold its space and that of all behind it for ever."""
    first, *others = topic.ledger.ledgers.infos()
    slowest = min(one.cursor.mark_delete_position for one in subscriptions)
    closed_ms = first.closed_at_ms or history.clock.now_ms()
    keep_ms = life.kind.keep_ms
    # Its retention may be over since the last round of trimming.
    round_ms = int(2 * TRIM_S * 1000)
    is_kept = keep_ms < 0 or history.clock.now_ms() - closed_ms < keep_ms + round_ms
    if others and slowest >= (first.ledger_id, first.entries - 1) and not is_kept:
        raise Broken(f"ledger {first.ledger_id} of {life.name} is left, although all have acknowledged it")


async def judge_life(history: History, broker: SimBroker, life: Life) -> None:
    """Raises Broken unless every promise about the topic is kept, in the end of the history."""
    topics: dict[str, PersistentTopic] = {}
    for one_name in {life.name, *map(life.name_for, life.kind.subscriptions)}:
        found = await broker.registry.get(parse_topic_name(one_name), create=False)
        assert isinstance(found, PersistentTopic)
        topics[one_name] = found
    topic = topics[life.name]
    readings = {
        name: await Reading.begin(history, topics[life.name_for(name)], life, name)
        for name in life.kind.subscriptions
    }
    await asyncio.sleep(QUIET_S)
    subscriptions = {name: one for each in topics.values() for name, one in each.subscriptions.items()}
    _judge_first_ledger(history, topic, life, list(subscriptions.values()))
    for name, reading in readings.items():
        got = {life.positions.get((one.ledger_id, one.entry_id)) for one in reading.port.got}
        reading.received()
        at = subscriptions[name].cursor.mark_delete_position
        for number, one in life.sent.items():
            if name in life.needed_by(one, history.clock) and number not in got:
                raise Broken(f"{one.body!r} of {life.name} is lost for {name}, whose cursor is at {at}")
    if life.kind.keys:
        await _judge_compacted(history, topic, life)
    for (ledger_id, entry_id), number in life.positions.items():
        one = life.sent[number]
        if life.is_retained(one, history.clock) or life.needed_by(one, history.clock):
            try:
                # Through the topic where a copy may have the entry.
                entry = (
                    await topic.ledger.read_entry(Position(ledger_id, entry_id))
                    if life.kind.tiered
                    else (
                        await read_entries(broker.environment.ledgers, ledger_id, entry_id, entry_id, 1 << 20)
                    )[0]
                )
            except PersistenceError as error:
                raise Broken(f"{one.body!r} of {life.name} cannot be read: {error}") from error
            if one.body not in bytes(entry.body):
                raise Broken(f"{ledger_id}:{entry_id} of {life.name} reads {bytes(entry.body)!r}")


async def _judge_compacted(history: History, topic: PersistentTopic, life: Life) -> None:
    """Raises Broken unless the compacted view has for each key its last confirmed message, or a later one."""
    view = await Reading.begin(history, topic, life, "view", compacted=True)
    await asyncio.sleep(QUIET_S)
    got = [int(bytes(one.body).rpartition(b":")[2]) for one in view.received()]
    view.leave()
    last = {life.key_of(number): number for number in got}
    for number in sorted(life.sent):
        if last.get(key := life.key_of(number), 0) < number:
            raise Broken(f"{life.sent[number].body!r} of {life.name} is not in the compacted view of {key}")
