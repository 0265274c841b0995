"""Flipped bits in journals that a replay needs: one line refuses the start and names file and remedy."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.bookie_stub.files import flip
from tests.interop.support import connect
from tests.vectors.broker_process import BrokerFailedError, BrokerProcess

pytestmark = pytest.mark.one_broker("damages files of the bookie and the store inside the process")

SETTINGS: Final = {"bindAddress": "127.0.0.1", "journalPreAllocSizeMB": "1"}
MESSAGES: Final = 60
PLACES: Final = 8
WAIT_MS: Final = 60_000


def body(number: int) -> bytes:
    return b"%04d" % number + b"." * 500


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a broker that was killed before any checkpoint: its journal alone has the messages."""
    broker = BrokerProcess(tmp_path_factory.mktemp("killed"), SETTINGS)
    broker.start()
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        client.subscribe("t", "s").close()
        producer = client.create_producer("t", batching_enabled=False)
        for number in range(MESSAGES):
            producer.send(body(number))
    broker.kill()
    return broker.folder


def all_messages(broker: BrokerProcess) -> list[int]:
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Exclusive)
        return [int(consumer.receive(WAIT_MS).data()[:4]) for _ in range(MESSAGES)]


@pytest.mark.parametrize("place", range(PLACES))
def test_flipped_bit_of_a_needed_journal_refuses_the_start_and_is_named(
    killed: Path, tmp_path: Path, place: int
) -> None:
    shutil.copytree(killed, tmp_path / "copy")
    broker = BrokerProcess(tmp_path / "copy", SETTINGS)
    (journal,) = (broker.folder / "data").rglob("*.txn")
    data = journal.read_bytes()
    at = data.find(body(place * (MESSAGES - 1) // (PLACES - 1)))
    assert at > 0
    flip(journal, at + 100)
    try:
        with pytest.raises(BrokerFailedError):
            broker.start()
        (line,) = [line for line in broker.log_lines() if "cannot start: " in line]
        assert journal.name in line
        assert "skipReplayJournalInvalidRecord" in line
        flip(journal, at + 100)
        broker.start()
        assert all_messages(broker) == list(range(MESSAGES))
    finally:
        broker.kill()
