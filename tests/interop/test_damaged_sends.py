"""Messages of the C++ client that a network damages: what the client is told is what the topic has.

This client, 3.13.0, gives up the first of them with ChecksumError, opens its producer again and sends the rest again.
Apache 4.2.4 refuses one message and stores those after it; the client's process then ends with a segmentation fault.
`test_other_clients.py` has the clients in Java and Go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import pulsar
import pytest

from tests.interop.support import Admin, connect, nothing_comes, receive, wait_until
from tests.support.log_file import wait_for_lines
from tests.support.send_proxy import FLIP, SendProxy
from tests.vectors.broker_process import BrokerProcess

IN_A_ROW: Final = 4
MESSAGES: Final = 10 * IN_A_ROW
BODIES: Final = [
    (FLIP if number // IN_A_ROW % 2 else b"good ") + b"%d" % number for number in range(MESSAGES)
]
OPENED_MAX: Final = 1 + MESSAGES // IN_A_ROW // 2
"""The broker closes the producer at most once for each row of damaged messages."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[SendProxy]:
    with contextlib.closing(SendProxy()) as running:
        yield running


@pytest.fixture(scope="module")
def proxied_broker(tmp_path_factory: pytest.TempPathFactory, proxy: SendProxy) -> Iterator[BrokerProcess]:
    settings = {"advertisedListeners": f"proxy:{proxy.url}"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as running:
        proxy.target = running.addresses.pulsar
        yield running


@pytest.mark.one_broker("its clients reach one process, through a proxy of the test")
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("deduplicated", [False, True])
def test_damaged_messages_are_refused_or_stored_once_in_order(
    proxied_broker: BrokerProcess, proxy: SendProxy, topic: str, batched: bool, deduplicated: bool
) -> None:
    changed_before = proxy.changed
    with contextlib.closing(connect(proxy.url, listener_name="proxy")) as client:
        consumer = client.subscribe(topic, "s")
        Admin.of(proxied_broker).post(f"persistent/public/default/{topic}/deduplicationEnabled", deduplicated)
        producer = client.create_producer(
            topic,
            batching_enabled=batched,
            batching_max_messages=IN_A_ROW,
            # By number alone: a delay that ends early would put good and damaged messages into one batch.
            batching_max_publish_delay_ms=60_000,
            send_timeout_millis=0,
        )
        results: list[tuple[bytes, pulsar.Result]] = []
        for body in BODIES:
            producer.send_async(body, lambda result, _, body=body: results.append((body, result)))
        wait_until(lambda: len(results) == MESSAGES, "the results of all sends")
        confirmed = [body for body, result in results if result == pulsar.Result.Ok]
        refused = {body for body, result in results if result == pulsar.Result.ChecksumError}
        assert proxy.changed > changed_before
        assert 0 < len(refused) <= len(BODIES) // 2
        assert all(body.startswith(FLIP) for body in refused)
        assert confirmed == [body for body in BODIES if body not in refused]
        assert receive(consumer, len(confirmed)) == confirmed
        assert nothing_comes(consumer)
    opened = len(wait_for_lines(proxied_broker.log_path, " producer ", "+ ", f"/{topic}", count=2))
    assert opened <= OPENED_MAX
