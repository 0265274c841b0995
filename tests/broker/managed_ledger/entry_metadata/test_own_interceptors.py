"""Interceptors of one's own add fields to the broker entry metadata, and cost an entry nothing but these when they fail."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from broker.config import load_broker_settings
from broker.managed_ledger.entry_metadata.own_interceptors import (
    OWN_BYTES_MAX,
    Fields,
    OwnInterceptors,
    OwnStamp,
    encode_fields,
)
from foundation.settings.errors import SettingsError
from protocol.broker_entry_metadata import STAMP_BYTES_MAX, ClockClamps, EntryMetadata, decode
from protocol.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata
from tests.support.memory_broker import memory_broker
from tests.support.raw_client import RawConnection, build_command, payload_frame

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "entry_metadata"
PULSARS = "org.apache.pulsar.common.intercept.Append{}MetadataInterceptor"
BOTH = f"{PULSARS.format('BrokerTimestamp')},{PULSARS.format('Index')}"
KEY = "brokerEntryMetadataInterceptors"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's package, as an installer leaves it."""
    shutil.copy(EXAMPLE / "region.py", tmp_path)
    info = tmp_path / "magnetar_region-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: magnetar-region\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[magnetar.broker_entry_metadata]\nregion = region:intercept\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "region", raising=False)


def test_example_declares_the_entry_point_that_the_test_installs() -> None:
    text = (EXAMPLE / "pyproject.toml").read_text()
    assert '[project.entry-points."magnetar.broker_entry_metadata"]\nregion = "region:intercept"\n' in text


def stamp_of(*functions: object, index: bool = True) -> OwnStamp:
    own = OwnInterceptors([(f"one{place}", one) for place, one in enumerate(functions)], lambda: 0)  # type: ignore[misc]
    return OwnStamp(
        own, "persistent://t/n/a", timestamp=index, index=index, now_ms=lambda: 1000, clamps=ClockClamps()
    )


def fails(topic: str, messages: int) -> Fields:
    raise KeyError("by the test")


def test_stamp_adds_the_fields_of_all_interceptors_after_those_of_pulsar() -> None:
    stamp = stamp_of(
        lambda topic, messages: {100: topic}, lambda topic, messages: {101: messages, 102: b"\1\2"}
    )
    first, second = stamp.stamp(3, 2)
    assert decode(first) == EntryMetadata(1000, 2)
    assert decode(second) == EntryMetadata(1000, 5)
    own = encode_fields({100: "persistent://t/n/a", 101: 3, 102: b"\1\2"})
    assert second.endswith(own)
    assert len(second) == 6 + int.from_bytes(second[2:6], "big")
    (alone,) = stamp_of(lambda topic, messages: {100: 7}, index=False).stamp(1, 1)
    assert alone == b"\x0e\x02\0\0\0\3\xa0\x06\x07"


@pytest.mark.parametrize(
    "bad",
    [
        fails,
        lambda topic, messages: {1: 5},
        lambda topic, messages: {2**29: 5},
        lambda topic, messages: {100: -1},
        lambda topic, messages: {100: 2**64},
        lambda topic, messages: {100: 1.5},
        lambda topic, messages: {100: bytes(OWN_BYTES_MAX)},
        lambda topic, messages: None,
    ],
)
def test_interceptor_that_fails_costs_its_fields_alone(bad: object, caplog: pytest.LogCaptureFixture) -> None:
    stamp = stamp_of(bad, lambda topic, messages: {100: bytes(OWN_BYTES_MAX - 4)})
    (block,) = stamp.stamp(1, 1)
    assert decode(block) == EntryMetadata(1000, 0)
    assert block.endswith(encode_fields({100: bytes(OWN_BYTES_MAX - 4)}))
    assert len(block) <= stamp.bytes_max == STAMP_BYTES_MAX + OWN_BYTES_MAX
    assert "interceptor one0 adds no fields on persistent://t/n/a" in caplog.text


def test_unknown_name_ends_the_start_with_the_names_that_exist(installed: None) -> None:
    with pytest.raises(SettingsError) as caught:
        load_broker_settings(None, environ={}, overrides=[f"{KEY}={BOTH},regoin"])
    assert caught.value.line == (
        f"--set: {KEY}={BOTH},regoin: no interceptor regoin: choose among {BOTH.replace(',', ', ')}, region, or install the"
        " package that has it"
    )


async def test_consumer_that_asks_for_the_block_gets_the_fields_and_reads_pulsars(installed: None) -> None:
    async with memory_broker(
        f"{KEY}={BOTH},region", "exposingBrokerEntryMetadataToClientEnabled=true"
    ) as broker:
        connection = await RawConnection.open(broker.addresses.service_url)
        await connection.connect(feature_flags={"supports_broker_entry_metadata": True})
        topic = "persistent://public/default/own-fields"
        connection.send("PRODUCER", topic=topic, producer_id=1, request_id=1)
        await connection.receive("PRODUCER_SUCCESS")
        connection.send(
            "SUBSCRIBE", topic=topic, subscription="s", subType="Exclusive", consumer_id=1, request_id=2
        )
        await connection.receive("SUCCESS")
        connection.send("FLOW", consumer_id=1, messagePermits=10)
        send = build_command("SEND", {"producer_id": 1, "sequence_id": 0, "num_messages": 1})
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        connection.send_bytes(payload_frame(send, metadata, b"payload"))
        await connection.receive("SEND_RECEIPT")
        frame = await connection.receive("MESSAGE")
        size = int.from_bytes(frame.trailing[2:6], "big")
        block = frame.trailing[6 : 6 + size]
        assert block.endswith(encode_fields({100: "eu-1", 101: "public"}))
        known = BrokerEntryMetadata.FromString(block)
        assert (known.index, known.broker_timestamp > 0) == (0, True)
        assert frame.entry().payload == b"payload"
        await connection.close()
