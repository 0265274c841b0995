"""Readers of a shadow topic while transactions publish to its source, and acknowledge on both."""

from __future__ import annotations

import pytest

from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.topics.new_topic import create_shadow
from foundation.model.topic_name import parse_topic_name
from tests.broker.service.transactions.bench import Bench
from tests.fakes.stage import EXCLUSIVE, TOPIC

SHADOW = "persistent://public/default/shadow"


@pytest.mark.parametrize("commit", [True, False])
async def test_readers_of_a_shadow_wait_for_the_oldest_open_transaction_of_its_source(commit: bool) -> None:
    bench = Bench()
    topic = await bench.open()
    await bench.stage.run(
        create_shadow(bench.stage.registry, parse_topic_name(SHADOW), {SHADOW_SOURCE: TOPIC})
    )
    shadow = await bench.stage.open(SHADOW)
    subscription, _, port = await bench.stage.consume(shadow, EXCLUSIVE, permits=100)
    await bench.publish(topic, None, b"0")
    txn = await bench.begin()
    await bench.publish(topic, txn, b"1", b"2")
    await bench.publish(topic, None, b"3")
    assert port.keys == [(0, 0)]
    assert shadow.ledger.context.last_readable == (0, 0)
    await bench.end(txn, commit=commit)
    wanted = [(0, 0), (0, 1), (0, 2), (0, 3)] if commit else [(0, 0), (0, 3)]
    assert port.keys == wanted
    assert subscription.cursor.backlog == len(wanted)
