"""A client of Pulsar 4.2 gets the same bytes from a broker that serves clients of 5.0, but for two flags in CONNECTED.

`tests/test_wire_vectors.py` replays the recordings of 4.2.4 with these flags on. Here one session is compared byte by byte
with `scalableTopicsEnabled` on and off.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.support.command_json import Json
from tests.support.ports import free_port
from tests.support.raw_client import EARLIEST, build_command, payload_frame, simple_frame
from tests.vectors.broker_process import BrokerProcess
from tests.vectors.wire import FLAGS_OF_5_0

TOPIC: Final = "persistent://public/default/t"
FLAGS_OF_4_2: Final[Mapping[str, Json]] = {
    "supports_auth_refresh": True,
    "supports_broker_entry_metadata": True,
    "supports_partial_producer": True,
    "supports_topic_watchers": True,
    "supports_get_partitioned_metadata_without_auto_creation": True,
}
TXN: Final[Mapping[str, Json]] = {"txnid_most_bits": 3, "txnid_least_bits": 0}
HERE: Final[Mapping[str, Json]] = {
    "consumer_id": 1,
    "topic": TOPIC,
    "subscription": "s",
    "consumer_name": "c",
}
SESSION: Final[tuple[tuple[str, dict[str, Json], int], ...]] = (
    ("CONNECT", {"client_version": "4.2", "protocol_version": 21, "feature_flags": {**FLAGS_OF_4_2}}, 1),
    ("PARTITIONED_METADATA", {"topic": TOPIC}, 1),
    ("LOOKUP", {"topic": TOPIC}, 1),
    ("LOOKUP", {"topic": "persistent://public/none/t"}, 1),
    ("LOOKUP", {"topic": "a/b"}, 1),
    ("PRODUCER", {"topic": TOPIC, "producer_id": 1, "txn_enabled": True}, 1),
    (
        "GET_OR_CREATE_SCHEMA",
        {"topic": TOPIC, "schema": {"name": "s", "schema_data": "", "type": "String"}},
        1,
    ),
    ("GET_SCHEMA", {"topic": TOPIC}, 1),
    ("PRODUCER", {"topic": "persistent://public/none/t", "producer_id": 2}, 1),
    ("SUBSCRIBE", {**HERE, "subType": "Shared", "initialPosition": "Earliest"}, 1),
    ("FLOW", {"consumer_id": 1, "messagePermits": 100}, 0),
    ("SEND", {"producer_id": 1, "sequence_id": 0}, 2),
    ("REDELIVER_UNACKNOWLEDGED_MESSAGES", {"consumer_id": 1}, 1),
    ("GET_LAST_MESSAGE_ID", {"consumer_id": 1}, 1),
    ("ACK", {"consumer_id": 1, "ack_type": "Individual", "message_id": [{"ledgerId": 0, "entryId": 0}]}, 1),
    ("GET_TOPICS_OF_NAMESPACE", {"namespace": "public/default", "mode": "ALL"}, 1),
    ("WATCH_TOPIC_LIST", {"watcher_id": 1, "namespace": "public/default", "topics_pattern": ".*/t.*"}, 1),
    ("TC_CLIENT_CONNECT_REQUEST", {"tc_id": 3}, 1),
    ("NEW_TXN", {"tc_id": 3, "txn_ttl_seconds": 60_000}, 1),
    ("ADD_PARTITION_TO_TXN", {**TXN, "partitions": [TOPIC]}, 1),
    ("ADD_SUBSCRIPTION_TO_TXN", {**TXN, "subscription": [{"topic": TOPIC, "subscription": "s"}]}, 1),
    ("SEND", {**TXN, "producer_id": 1, "sequence_id": 1}, 1),
    ("END_TXN", {**TXN, "txn_action": "COMMIT"}, 2),
    ("SEEK", {"consumer_id": 1, "message_id": EARLIEST}, 2),
    ("SUBSCRIBE", {**HERE, "subType": "Shared", "initialPosition": "Earliest"}, 1),
    ("UNSUBSCRIBE", {"consumer_id": 1}, 1),
    ("CLOSE_PRODUCER", {"producer_id": 1}, 1),
    ("PING", {}, 1),
)
"""The commands of the client, and the number of frames that answer each."""


async def frames_of(url: str) -> list[bytes]:
    """Holds the session and returns each frame that came, byte by byte; those that answer one command sorted."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    requests = itertools.count(1)
    found: list[bytes] = []
    for kind, fields, answers in SESSION:
        writer.write(said(kind, fields, next(requests)))
        async with asyncio.timeout(60):
            found += sorted([await frame_from(reader) for _ in range(answers)])
    writer.close()
    await writer.wait_closed()
    return found


def said(kind: str, fields: Mapping[str, Json], request_id: int) -> bytes:
    command = build_command(kind, fields)
    part = getattr(command, BaseCommand.DESCRIPTOR.fields_by_number[command.type].name)
    if "request_id" in part.DESCRIPTOR.fields_by_name:
        part.request_id = request_id
    if kind != "SEND":
        return simple_frame(command)
    metadata = MessageMetadata(producer_name="p", sequence_id=part.sequence_id, publish_time=1)
    return payload_frame(command, metadata, b"x")


async def frame_from(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big"))


def command_of(frame: bytes) -> BaseCommand:
    return BaseCommand.FromString(frame[8 : 8 + int.from_bytes(frame[4:8], "big")])


@pytest.mark.one_broker("compares whole conversations of a raw client that looks nothing up")
async def test_two_flags_of_connected_are_all_that_a_client_of_4_2_sees(tmp_path: Path) -> None:
    ports = {"brokerServicePort": str(free_port()), "webServicePort": str(free_port())}
    found: dict[str, list[bytes]] = {}
    for enabled in ("true", "false"):
        settings = {**ports, "transactionCoordinatorEnabled": "true", "scalableTopicsEnabled": enabled}
        folder = tmp_path / enabled
        folder.mkdir()
        with BrokerProcess(folder, settings) as broker:
            found[enabled] = await frames_of(broker.addresses.pulsar)
    with_flags, without = command_of(found["true"][0]), command_of(found["false"][0])
    flags = with_flags.connected.feature_flags
    assert all(getattr(flags, flag) for flag in FLAGS_OF_5_0)
    assert not any(without.connected.feature_flags.HasField(flag) for flag in FLAGS_OF_5_0)
    for flag in FLAGS_OF_5_0:
        flags.ClearField(flag)
    assert simple_frame(with_flags) == found["false"][0]
    kinds = [BaseCommand.Type.Name(command_of(frame).type) for frame in found["true"]]
    assert len(kinds) == sum(answers for _, _, answers in SESSION)
    assert kinds.count("MESSAGE") == 3, kinds
    assert found["true"][1:] == found["false"][1:]
