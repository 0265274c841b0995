"""Policies about storage: bookies of the next ledger, writes of positions, snapshots of deduplication."""

from __future__ import annotations

from broker.compose.ledger_upkeep import save_deduplication
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.service.internal_cursors import DEDUPLICATION_CURSOR
from broker.service.policies import table
from tests.fakes.stage import TOPIC, Stage

S = 1_000_000_000
NAMESPACE = "public/default"
COPIES = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2}


async def test_persistence_of_a_topic_reaches_its_open_ledger_and_leaves_with_the_policy() -> None:
    stage = Stage()
    topic = await stage.open()
    before = topic.ledger.context.settings
    policy = {**COPIES, "managedLedgerMaxMarkDeleteRate": 5.0}
    await stage.run(stage.namespaces.set_topic_policy(TOPIC, table.STORED.topic_name, {**policy}))
    settings = topic.ledger.context.settings
    assert (settings.copies, settings.mark_delete_rate) == ((3, 2, 2), 5.0)
    await stage.run(stage.namespaces.set_topic_policy(TOPIC, table.STORED.topic_name, None))
    assert topic.ledger.context.settings is before


async def test_persistence_of_a_namespace_holds_from_the_first_ledger_and_keeps_the_broker_rate() -> None:
    stage = Stage()
    await stage.namespaces.open()
    await stage.run(stage.namespaces.set_policy(NAMESPACE, table.STORED.name, {**COPIES}))
    settings = (await stage.open()).ledger.context.settings
    assert (settings.copies, settings.mark_delete_rate) == ((3, 2, 2), 0)


async def test_sequence_ids_are_saved_after_the_time_of_the_policy() -> None:
    stage = Stage(deduplication=True, deduplication_snapshot_s=120)
    topic = await stage.open()
    await stage.publish(topic, 3)
    cursor: ManagedCursor = topic.ledger.cursors.by_name[DEDUPLICATION_CURSOR]
    before = cursor.mark_delete_position
    stage.now_ns += 119 * S
    save_deduplication(topic, stage.now_ns)
    assert cursor.mark_delete_position == before
    await stage.run(stage.namespaces.set_topic_policy(TOPIC, table.DEDUPLICATION_SNAPSHOTS.topic_name, 100))
    save_deduplication(topic, stage.now_ns)
    assert cursor.mark_delete_position == topic.ledger.last_confirmed
    assert cursor.acks.properties == {"publisher": 2}
    await stage.settle()
    # Nothing new came, so nothing is due.
    stage.metadata.refusing = True
    save_deduplication(topic, stage.now_ns + 1000 * S)
    await stage.settle()
    assert len(topic.ledger.environment.unsaved_cursors) == 0


async def test_interval_of_0_saves_nothing_by_time() -> None:
    stage = Stage(deduplication=True, deduplication_snapshot_s=0)
    topic = await stage.open()
    await stage.publish(topic, 3)
    cursor = topic.ledger.cursors.by_name[DEDUPLICATION_CURSOR]
    before = cursor.mark_delete_position
    save_deduplication(topic, stage.now_ns + 10**6 * S)
    assert cursor.mark_delete_position == before
