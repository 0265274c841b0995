"""A bookie that is away proves no loss: `autoSkipNonRecoverableData` skips nothing until it is back.

Real processes: a broker on one bookie, which is killed while a subscription reads.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pulsar
import pytest

from tests.interop.support import RECEIVE_MS, connect
from tests.support.bookies import BookieProcesses, ensemble_settings
from tests.vectors.broker_process import BrokerProcess

MESSAGES = 20
READS_MS = 3000
"""Time for five reads in vain, after 100, 200, 400 and 800 ms; an entry may be skipped after three."""


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_messages_of_a_bookie_that_was_killed_are_delivered_when_it_is_back(
    kind: pulsar.ConsumerType, tmp_path: Path
) -> None:
    with BookieProcesses(tmp_path / "bookies", 1) as bookies:
        settings = {**ensemble_settings(bookies.addresses), "autoSkipNonRecoverableData": "true"}
        broker = BrokerProcess(tmp_path, settings)
        broker.start()
        with contextlib.closing(connect(broker.addresses.pulsar)) as client:
            client.subscribe("t", "s", consumer_type=kind).close()
            producer = client.create_producer("t", batching_enabled=False)
            for number in range(MESSAGES):
                producer.send(b"%d" % number)
        assert broker.stop() == 0
        # A new broker, because the old one may have the entries in memory.
        broker.start()
        try:
            with contextlib.closing(connect(broker.addresses.pulsar)) as client:
                # The topic is opened before the bookie goes away.
                client.subscribe("t", "other", consumer_type=kind).close()
                bookies.kill()
                consumer = client.subscribe("t", "s", consumer_type=kind)
                with pytest.raises(pulsar.Timeout):
                    consumer.receive(READS_MS)
                bookies.start()
                found = [int(consumer.receive(RECEIVE_MS).data()) for _ in range(MESSAGES)]
            assert found == list(range(MESSAGES))
            assert not [line for line in broker.log_lines() if "is lost" in line or "skips lost" in line]
        finally:
            broker.kill()
