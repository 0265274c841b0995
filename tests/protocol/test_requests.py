"""Requests are whole frames that read back as what was asked, with ids that may be negative."""

from __future__ import annotations

import struct

from protocol import requests
from protocol.commands import parse_command
from protocol.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe


def read(frame: bytes) -> BaseCommand:
    total, size = struct.unpack_from(">II", frame)
    assert (total, size) == (len(frame) - 4, len(frame) - 8)
    return parse_command(frame[8:])


def test_reader_subscribes_before_the_first_entry() -> None:
    request = read(requests.subscribe_reader(1, 2, "t", "s", (-1, -1), rollback_s=5)).subscribe
    assert request.start_message_id.ledgerId == request.start_message_id.entryId == 2**64 - 1
    assert (request.durable, request.force_topic_creation) == (False, False)
    assert request.start_message_rollback_duration_sec == 5


def test_durable_subscription_starts_at_the_requested_end() -> None:
    positions = [
        read(requests.subscribe_durable(1, 2, "t", "s", earliest=earliest)).subscribe.initialPosition
        for earliest in (True, False)
    ]
    assert positions == [CommandSubscribe.Earliest, CommandSubscribe.Latest]


def test_acknowledge_up_to_is_cumulative() -> None:
    request = read(requests.acknowledge_up_to(7, 2, (5, 300))).ack
    assert (request.ack_type, request.request_id) == (CommandAck.Cumulative, 7)
    assert [(one.ledgerId, one.entryId) for one in request.message_id] == [(5, 300)]


def test_connect_carries_credentials_and_the_broker_behind_a_proxy() -> None:
    request = read(requests.connect("c", auth=("token", b"secret"), proxy_to="b:6650")).connect
    assert (request.auth_method_name, request.auth_data, request.proxy_to_broker_url) == (
        "token",
        b"secret",
        "b:6650",
    )
    plain = read(requests.connect("c", auth=None, proxy_to=None)).connect
    assert not plain.HasField("auth_method_name")
    assert not plain.HasField("proxy_to_broker_url")


def test_send_head_counts_the_body_behind_it() -> None:
    head = requests.send_head(3, 10, 19, 10, 500)
    total, size = struct.unpack_from(">II", head)
    assert total == 4 + size + 500
    request = parse_command(head[8:]).send
    assert (request.producer_id, request.sequence_id, request.highest_sequence_id) == (3, 10, 19)
    assert request.num_messages == 10
