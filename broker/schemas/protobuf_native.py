"""Protobuf native schemas: file descriptors and the name of a root message, in one JSON object.

{"fileDescriptorSet": base64 of a FileDescriptorSet, "rootMessageTypeName": "p.M", "rootFileDescriptorName": "a.proto"}
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from foundation.model.errors import InvalidSchemaData


def root_message(data: bytes) -> str:
    """Returns the full name of the root message.

    InvalidSchemaData when the descriptors do not fit together or lack the message.
    """
    try:
        parts = json.loads(data)
        content = base64.b64decode(parts["fileDescriptorSet"], validate=True)
        root, root_file = str(parts["rootMessageTypeName"]), str(parts["rootFileDescriptorName"])
        files = {file.name: file for file in FileDescriptorSet.FromString(content).file}
        pool = DescriptorPool()
        for file in _dependencies_first(files):
            # Serialized again: protobuf's Python has no other way into a pool.
            pool.AddSerializedFile(file.SerializeToString())
        found = pool.FindMessageTypeByName(root)
    # Each of protobuf's implementations has its own choice among these for descriptors that do not fit together.
    except (ValueError, KeyError, TypeError, DecodeError, CycleError, RecursionError) as error:
        raise InvalidSchemaData(f"the descriptors of a protobuf schema cannot be read: {error}") from None
    if found.file.name != root_file:
        raise InvalidSchemaData(f"the message {root} is in {found.file.name}, not in {root_file[:100]!r}")
    return str(found.full_name)


def _dependencies_first(files: dict[str, FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    graph = {name: set(file.dependency) for name, file in files.items()}
    for name in TopologicalSorter(graph).static_order():
        if name not in files:
            raise KeyError(f"{name} is imported and missing")
        yield files[name]
