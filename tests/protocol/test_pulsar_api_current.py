"""The generated code is what the .proto file says, and it carries every recorded frame without a loss."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from protocol.pulsar_api_pb2 import BaseCommand
from tests.vectors.folder import vectors_folder

REPOSITORY = Path(__file__).resolve().parents[2]
PROTO = "protocol/pulsar_api.proto"


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None or importlib.util.find_spec("mypy_protobuf") is None,
    reason="grpcio-tools and mypy-protobuf are development dependencies and not installed here",
)
def test_generated_code_is_current(tmp_path: Path) -> None:
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{REPOSITORY}", f"--python_out={tmp_path}"]
    command += [f"--plugin=protoc-gen-mypy={plugin}", f"--mypy_out={tmp_path}", PROTO]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    for name in ("pulsar_api_pb2.py", "pulsar_api_pb2.pyi"):
        fresh, committed = tmp_path / "protocol" / name, REPOSITORY / "protocol" / name
        assert fresh.read_bytes() == committed.read_bytes(), f"regenerate protocol/{name}"


def test_type_and_field_of_a_command_have_one_number() -> None:
    fields = {field.number: field for field in BaseCommand.DESCRIPTOR.fields}
    numbers = set(BaseCommand.Type.values())
    assert numbers == set(fields) - {1}


def test_every_recorded_frame_survives_decoding_and_encoding() -> None:
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
    assert _unknown_fields(command) == []
    (payload,) = [value for field, value in command.ListFields() if field.name != "type"]
    fields = recorded["fields"]
    assert isinstance(fields, dict)
    # A transcript may name an empty list; on the wire that is nothing.
    assert {field.name for field, _ in payload.ListFields()} == {
        name for name, value in fields.items() if value != []
    }


def _unknown_fields(message: Message) -> list[str]:
    unknown = UnknownFieldSet(message)
    found = [f"{message.DESCRIPTOR.name}: {unknown[index].field_number}" for index in range(len(unknown))]
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for child in value if field.is_repeated else [value]:
                found += _unknown_fields(child)
    return found


def _frames(value: object) -> list[dict[str, object]]:
    if isinstance(value, dict):
        own = [value] if "hex" in value and value.get("type") != "RAW" else []
        return own + [frame for child in value.values() for frame in _frames(child)]
    if isinstance(value, list):
        return [frame for child in value for frame in _frames(child)]
    return []
