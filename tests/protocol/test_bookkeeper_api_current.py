"""Our .proto file of BookKeeper's v3 wire carries every recorded frame without a loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from protocol.bookkeeper_api_pb2 import OperationType, Request, Response
from tests.protocol.unknown_fields import unknown_fields
from tests.vectors.folder import vectors_folder


def test_recorded_bookie_frames_survive_decoding_and_encoding() -> None:
    path = vectors_folder() / "bookie/wire-v3.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    operations = set()
    frames = 0
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if line["kind"] != "frame" or "uninitialized" in line["decoded"] or "undecoded" in line["decoded"]:
            continue
        packet = bytes.fromhex(line["hex"])[4:]
        message = (Request if line["dir"] == "c2b" else Response).FromString(packet)
        assert message.IsInitialized()
        assert message.SerializeToString() == packet
        assert unknown_fields(message) == []
        found = MessageToDict(message, preserving_proto_field_name=True)
        _compare(found, {name: value for name, value in line["decoded"].items() if name != "v"})
        operations.add(message.header.operation)
        frames += 1
    assert frames > 400
    assert operations == set(OperationType.values()) - {
        OperationType.RANGE_READ_ENTRY,
        OperationType.RANGE_ADD_ENTRY,
    }


def _compare(found: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Names and values; of bytes only that they are there."""
    assert found.keys() == recorded.keys()
    for name, value in recorded.items():
        if isinstance(value, dict) and ("sha256" in value or "hex" in value or "size" in value):
            assert isinstance(found[name], str)
        elif isinstance(value, dict):
            _compare(found[name], value)
        else:
            assert str(found[name]) == str(value), name
