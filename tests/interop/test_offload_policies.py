"""Offload policies of namespaces and topics, set by pulsar-admin's requests on a running broker, act on its topics."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pulsar
import pytest

from tests.interop.support import Admin, Json, connect, numbered, publish, read, wait_until
from tests.vectors.broker_process import BrokerProcess

MESSAGES: Final = 25
"""Two full ledgers, and a third one that is open."""
FILES: Final[Json] = {"managedLedgerOffloadDriver": "filesystem"}


class Offloading:
    """A running broker with a folder for copies and no threshold of its own."""

    def __init__(self, folder: Path) -> None:
        self.objects = folder / "objects"
        self.objects.mkdir()
        settings = {
            "managedLedgerOffloadDriver": "filesystem",
            "fileSystemURI": self.objects.as_uri(),
            "managedLedgerMaxEntriesPerLedger": "10",
            "managedLedgerMinLedgerRolloverTimeMinutes": "0",
            "retentionCheckIntervalInSeconds": "1",
            "brokerDeleteInactiveTopicsEnabled": "false",
        }
        self.broker = BrokerProcess(folder, settings)
        self.broker.start()
        self.admin = Admin.of(self.broker)
        self.client = connect(self.broker.addresses.pulsar)

    def fill(self, topic: str, first: int = 0) -> None:
        """Publishes messages that a subscription keeps."""
        self.client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest).close()
        producer = self.client.create_producer(topic, batching_enabled=False)
        publish(producer, numbered(MESSAGES, first))
        producer.close()

    def ledgers(self, topic: str) -> list[dict[str, Any]]:
        """The ledgers of a topic in its internal statistics."""
        stats: Any = self.admin.get(f"{topic.replace('://', '/')}/internalStats")
        return list(stats["ledgers"])

    def offloaded(self, topic: str) -> list[bool]:
        """Of each ledger, whether it is offloaded."""
        return [one["offloaded"] for one in self.ledgers(topic)]

    def in_bookies(self, topic: str) -> list[int]:
        """The ledgers that have metadata still."""
        return [one["ledgerId"] for one in self.ledgers(topic) if self._has_metadata(one["ledgerId"])]

    def _has_metadata(self, ledger_id: int) -> bool:
        try:
            self.admin.get(f"magnetar/ledgers/{ledger_id}/entries?first=0")
        except urllib.error.HTTPError as error:
            return error.code != 404
        return True


@pytest.fixture
def offloading(tmp_path: Path) -> Iterator[Offloading]:
    offloading = Offloading(tmp_path)
    yield offloading
    offloading.client.close()
    assert offloading.broker.stop() == 0


def test_policies_of_a_namespace_move_the_ledgers_of_its_topics(offloading: Offloading) -> None:
    admin, path = offloading.admin, "namespaces/public/moved"
    admin.put(path)
    topic, other = "persistent://public/moved/t", "persistent://public/default/t"
    for each in (topic, other):
        offloading.fill(each)
    # As `pulsar-admin namespaces set-offload-threshold --size 0` and `set-offload-deletion-lag --lag 0s` send it.
    admin.put(f"{path}/offloadThreshold", 0)
    assert admin.get(f"{path}/offloadThreshold") == 0
    wait_until(lambda: offloading.offloaded(topic) == [True, True, False], "the closed ledgers are copied")
    before = [one["ledgerId"] for one in offloading.ledgers(topic)]
    assert offloading.in_bookies(topic) == before, "the lag is four hours"
    admin.put(f"{path}/offloadDeletionLagMs", 0)
    wait_until(lambda: offloading.in_bookies(topic) == before[2:], "the bookies lose the copied ledgers")
    reader = offloading.client.create_reader(topic, pulsar.MessageId.earliest)
    assert read(reader, MESSAGES) == numbered(MESSAGES)
    assert offloading.offloaded(other) == [False, False, False]


def test_policies_of_a_topic_win_and_end_with_their_removal(offloading: Offloading) -> None:
    admin, topic = offloading.admin, "persistent://public/default/t"
    other, path = "persistent://public/default/other", "persistent/public/default/t/offloadPolicies"
    for each in (topic, other):
        offloading.fill(each)
    assert isinstance(FILES, dict)
    # As `pulsar-admin topicPolicies set-offload-policies` sends it.
    admin.post(path, {**FILES, "managedLedgerOffloadThresholdInSeconds": 0})
    wait_until(lambda: offloading.offloaded(topic) == [True, True, False], "the closed ledgers are copied")
    assert offloading.offloaded(other) == [False, False, False]
    admin.delete(path)
    wait_until(lambda: admin.get(path) is None, "the policy is gone")
    offloading.fill(topic, MESSAGES)
    # One round looks at all topics, so the first one has been looked at when the other one is copied.
    admin.post(path.replace("/t/", "/other/"), {**FILES, "managedLedgerOffloadThresholdInSeconds": 0})
    wait_until(lambda: offloading.offloaded(other) == [True, True, False], "the other topic is copied")
    assert offloading.offloaded(topic) == [True, True, *[False] * 4]


def test_policy_without_its_bucket_is_refused(offloading: Offloading) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        offloading.admin.post(
            "namespaces/public/default/offloadPolicies", {"managedLedgerOffloadDriver": "aws-s3"}
        )
    assert refused.value.code in (400, 412)
    assert "bucket must be specified" in refused.value.read().decode()
