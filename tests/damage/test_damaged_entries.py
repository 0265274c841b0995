"""A damaged entry in an entry log: good entries are delivered, the log names it once, `autoSkipNonRecoverableData` skips it.

Real files: a broker stores messages and stops, one bit of its entry log is changed, and official clients read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Final

import pulsar
import pytest

from tests.damage.flips import flip_in
from tests.interop.support import RECEIVE_MS, SILENCE_MS, Admin, connect, wait_until
from tests.vectors.broker_process import BrokerProcess

pytestmark = pytest.mark.one_broker("damages files of the bookie and the store inside the process")

SETTINGS: Final = {"bindAddress": "127.0.0.1", "activeConsumerFailoverDelayTimeMillis": "0"}
MESSAGES: Final = 40
DAMAGED: Final = 17
WAIT_S: Final = 60.0
Type = pulsar.ConsumerType


def body(number: int) -> bytes:
    return b"<message %04d>" % number + b"." * 500


def number_of(message: pulsar.Message) -> int:
    return int(message.data()[9:13])


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker, stopped, whose topic `t` has an entry with a flipped bit; subscriptions `early-*` acknowledged nothing."""
    broker = BrokerProcess(tmp_path_factory.mktemp("damaged"), SETTINGS)
    broker.start()
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        client.subscribe("t", "early-exclusive").close()
        client.subscribe("t", "early-shared", consumer_type=Type.Shared).close()
        client.subscribe("t", "early-skipping", consumer_type=Type.Shared).close()
        producer = client.create_producer("t", batching_enabled=False)
        for number in range(MESSAGES):
            producer.send(body(number))
    assert broker.stop() == 0
    flip_in(broker.folder / "data", "*.log", body(DAMAGED))
    broker.start()
    yield broker
    broker.kill()


def received_until_silence(consumer: pulsar.Consumer, at_least: int) -> list[int]:
    """Receives so many messages and then everything that comes without a pause."""
    found = [number_of(consumer.receive(RECEIVE_MS)) for _ in range(at_least)]
    with contextlib.suppress(pulsar.Timeout):
        while True:
            found.append(number_of(consumer.receive(SILENCE_MS)))
    return found


def lines_about_loss(broker: BrokerProcess) -> list[str]:
    return [line for line in broker.log_lines() if "is lost" in line]


def test_entries_before_a_damaged_one_are_delivered_and_it_is_named_once(damaged: BrokerProcess) -> None:
    with contextlib.closing(connect(damaged.addresses.pulsar)) as client:
        exclusive = client.subscribe("t", "early-exclusive")
        assert received_until_silence(exclusive, DAMAGED) == list(range(DAMAGED))
        shared = client.subscribe("t", "early-shared", consumer_type=Type.Shared)
        assert received_until_silence(shared, DAMAGED) == list(range(DAMAGED))
        wait_until(lambda: lines_about_loss(damaged), "the damaged entry is named", WAIT_S)
        for name in ("early-exclusive", "early-shared"):
            failed = f"{MESSAGES - DAMAGED} entries were not read, because reading fails at"
            wait_until(lambda: failed in why(damaged, name), "the reason", WAIT_S)  # noqa: B023 - called at once
            assert f":{DAMAGED}: digest does not match its bytes" in why(damaged, name)
            assert why(damaged, name).endswith("autoSkipNonRecoverableData=true to skip lost entries.")
    (line,) = lines_about_loss(damaged)
    assert f":{DAMAGED} of public/default/persistent/t is lost" in line
    assert "0.log at " in line
    assert "autoSkipNonRecoverableData" in line


def why(broker: BrokerProcess, subscription: str) -> str:
    """Returns the broker's answer why the subscription does not go on."""
    admin = Admin(broker.addresses.admin)
    told = admin.get(f"magnetar/subscriptions/why/persistent/public/default/t/{subscription}")
    assert isinstance(told, dict)
    return str(told["conclusion"])


def test_damaged_entry_is_skipped_when_the_setting_says_so(damaged: BrokerProcess) -> None:
    admin = Admin(damaged.addresses.admin)
    admin.post("brokers/configuration/autoSkipNonRecoverableData/true")
    good = [number for number in range(MESSAGES) if number != DAMAGED]
    with contextlib.closing(connect(damaged.addresses.pulsar)) as client:
        for name, kind in (("early-exclusive", Type.Exclusive), ("early-skipping", Type.Shared)):
            consumer = client.subscribe("t", name, consumer_type=kind)
            found = []
            for _ in good:
                message = consumer.receive(int(WAIT_S * 1000))
                found.append(number_of(message))
                consumer.acknowledge(message)
            assert found == good
            wait_until(partial(is_empty, admin, name), "the backlog is empty", WAIT_S)
            wait_until(partial(skips, damaged, name), "the skip is named", WAIT_S)
            consumer.close()
    assert len(lines_about_loss(damaged)) == 1


def skips(broker: BrokerProcess, subscription: str) -> bool:
    start = f"subscription {subscription} of public/default/persistent/t skips lost entries: "
    return any(start in line for line in broker.log_lines())


def is_empty(admin: Admin, subscription: str) -> bool:
    stats = admin.get("persistent/public/default/t/stats")
    assert isinstance(stats, dict)
    subscriptions = stats["subscriptions"]
    assert isinstance(subscriptions, dict)
    one = subscriptions[subscription]
    assert isinstance(one, dict)
    return one["msgBacklog"] == 0
