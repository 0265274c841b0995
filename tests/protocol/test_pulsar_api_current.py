"""Our .proto file of Pulsar's commands carries every recorded frame without a loss."""

from __future__ import annotations

import json
import struct

from protocol.pulsar_api_pb2 import BaseCommand
from tests.protocol.unknown_fields import unknown_fields
from tests.vectors.folder import vectors_folder


def test_command_type_and_field_share_one_number() -> None:
    fields = {field.number: field for field in BaseCommand.DESCRIPTOR.fields}
    numbers = set(BaseCommand.Type.values())
    assert numbers == set(fields) - {1}


def test_recorded_pulsar_frames_survive_decoding_and_encoding() -> None:
    frames = 0
    for path in sorted((vectors_folder() / "wire").glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                for recorded in _frames(json.loads(line)["steps"]):
                    frames += 1
                    _check(recorded)
    assert frames > 1000


def _check(recorded: dict[str, object]) -> None:
    frame = bytes.fromhex(str(recorded["hex"]).removesuffix("..."))
    (size,) = struct.unpack_from(">I", frame, 4)
    encoded = frame[8 : 8 + size]
    command = BaseCommand.FromString(encoded)
    assert BaseCommand.Type.Name(command.type) == recorded["type"]
    assert command.SerializeToString() == encoded
    assert unknown_fields(command) == []
    (payload,) = [value for field, value in command.ListFields() if field.name != "type"]
    fields = recorded["fields"]
    assert isinstance(fields, dict)
    # A transcript may name an empty list; on the wire that is nothing.
    assert {field.name for field, _ in payload.ListFields()} == {
        name for name, value in fields.items() if value != []
    }


def _frames(value: object) -> list[dict[str, object]]:
    if isinstance(value, dict):
        own = [value] if "hex" in value and value.get("type") != "RAW" else []
        return own + [frame for child in value.values() for frame in _frames(child)]
    if isinstance(value, list):
        return [frame for child in value for frame in _frames(child)]
    return []
