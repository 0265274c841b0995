"""A damaged last entry after kill -9: opening the topic names it, and `autoSkipNonRecoverableData` opens it without.

Real files: a broker stores messages, flushes them to its entry log and is killed; one bit of the last one is changed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.damage.flips import flip_in
from tests.interop.support import RECEIVE_MS, Admin, connect, wait_until
from tests.vectors.broker_process import BrokerProcess

pytestmark = pytest.mark.one_broker("damages files of the bookie and the store inside the process")

SETTINGS: Final = {
    "bindAddress": "127.0.0.1",
    "flushInterval": "100",
    "journalMaxBackups": "0",
    "brokerEntryMetadataInterceptors": (
        "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor,"
        "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"
    ),
}
MESSAGES: Final = 20
WAIT_S: Final = 60.0


def body(number: int) -> bytes:
    return b"<message %04d>" % number + b"." * 500


def is_checkpointed(folder: Path, text: bytes) -> bool:
    """True once a replay of the journal would begin behind the text."""
    (journal,) = folder.rglob("*.txn")
    (mark,) = folder.rglob("lastMark")
    return int.from_bytes(mark.read_bytes()[8:16]) > journal.read_bytes().find(text) > 0


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a broker that was killed after its entries had reached an entry log."""
    broker = BrokerProcess(tmp_path_factory.mktemp("killed"), SETTINGS)
    broker.start()
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        client.subscribe("t", "s").close()
        producer = client.create_producer("t", batching_enabled=False)
        for number in range(MESSAGES):
            producer.send(body(number))
        data = broker.folder / "data"
        wait_until(lambda: is_checkpointed(data, body(MESSAGES - 1)), "the entries to be flushed", WAIT_S)
    broker.kill()
    flip_in(data, "*.log", body(MESSAGES - 1))
    return broker.folder


@pytest.fixture
def broker(killed: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker on a copy of the damaged files."""
    shutil.copytree(killed, tmp_path / "copy")
    running = BrokerProcess(tmp_path / "copy", SETTINGS)
    running.start()
    yield running
    running.kill()


def lines_about(broker: BrokerProcess, text: str) -> list[str]:
    return [line for line in broker.log_lines() if text in line]


def test_damaged_last_entry_is_named_when_its_topic_cannot_be_opened(broker: BrokerProcess) -> None:
    impatient = connect(broker.addresses.pulsar, operation_timeout_seconds=3)
    with contextlib.closing(impatient), pytest.raises(pulsar.PulsarException):
        impatient.subscribe("t", "s")
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        client.create_producer("other").send(b"served")
    wait_until(lambda: bool(lines_about(broker, "cannot open")), "the line", WAIT_S)
    line = lines_about(broker, "cannot open")[0]
    assert "public/default/persistent/t: the end of its ledger 0" in line
    assert f"entry 0:{MESSAGES - 1}" in line
    assert "0.log at " in line
    assert "autoSkipNonRecoverableData=true" in line


def test_topic_opens_without_its_damaged_last_entry_when_the_setting_says_so(broker: BrokerProcess) -> None:
    Admin(broker.addresses.admin).post("brokers/configuration/autoSkipNonRecoverableData/true")
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        consumer = client.subscribe("t", "s")
        client.create_producer("t", batching_enabled=False).send(body(MESSAGES))
        found = []
        for _ in range(MESSAGES):
            message = consumer.receive(RECEIVE_MS)
            found.append(message.data())
            consumer.acknowledge(message)
    assert found == [body(number) for number in range(MESSAGES + 1) if number != MESSAGES - 1]
    wait_until(lambda: bool(lines_about(broker, "skips lost entries: 0:")), "the skip", WAIT_S)
