"""Damaged bytes of the metadata store: a start is refused and names the loss, and no confirmed message is lost in silence.

Real files: a broker is killed after confirmed messages, and one bit of its write-ahead log or of its store is changed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.bookie_stub.files import flip
from tests.interop.support import connect
from tests.vectors.broker_process import BrokerFailedError, BrokerProcess

pytestmark = pytest.mark.one_broker("damages files of the bookie and the store inside the process")

SETTINGS: Final = {
    "bindAddress": "127.0.0.1",
    "managedLedgerMaxEntriesPerLedger": "100",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
MESSAGES: Final = 450
PLACES: Final = 8
WAIT_MS: Final = 60_000


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a broker that confirmed messages in several ledgers and was killed."""
    broker = BrokerProcess(tmp_path_factory.mktemp("killed"), SETTINGS)
    broker.start()
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        client.subscribe("t", "s").close()
        producer = client.create_producer("t", batching_enabled=False)
        for number in range(MESSAGES):
            producer.send(b"%04d" % number)
    broker.kill()
    return broker.folder


@pytest.fixture
def copy(killed: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    shutil.copytree(killed, tmp_path / "copy")
    broker = BrokerProcess(tmp_path / "copy", SETTINGS)
    yield broker
    broker.kill()


def all_messages(broker: BrokerProcess) -> list[int]:
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Exclusive)
        return [int(consumer.receive(WAIT_MS).data()) for _ in range(MESSAGES)]


def refusal_of(broker: BrokerProcess) -> str:
    """The only line that a refused start writes as an error."""
    (line,) = [line for line in broker.log_lines() if "cannot start: " in line]
    return line


def test_killed_broker_has_every_confirmed_message(copy: BrokerProcess) -> None:
    copy.start()
    assert all_messages(copy) == list(range(MESSAGES))


@pytest.mark.parametrize("place", range(PLACES))
def test_flipped_byte_of_the_write_ahead_log_refuses_the_start(copy: BrokerProcess, place: int) -> None:
    log = copy.folder / "data/metadata.sqlite-wal"
    flip(log, 32 + (log.stat().st_size - 32) * place // PLACES + 100)
    with pytest.raises(BrokerFailedError):
        copy.start()
    assert "commits: a byte of its write-ahead log is damaged" in refusal_of(copy)
    assert "remove metadata.sqlite-commits" in refusal_of(copy)


def test_loss_is_accepted_when_the_count_of_commits_is_removed(copy: BrokerProcess) -> None:
    log = copy.folder / "data/metadata.sqlite-wal"
    flip(log, log.stat().st_size * 3 // 4)
    (copy.folder / "data/metadata.sqlite-commits").unlink()
    copy.start()


def test_flipped_byte_of_a_record_refuses_the_start(copy: BrokerProcess) -> None:
    copy.start()
    assert copy.stop() == 0
    store = copy.folder / "data/metadata.sqlite"
    at = store.read_bytes().rfind(b"/managed-ledgers/public/default/persistent/t")
    flip(store, at + 10)
    with pytest.raises(BrokerFailedError):
        copy.start()
    assert "records do not fit their checksums" in refusal_of(copy) or "is damaged" in refusal_of(copy)
