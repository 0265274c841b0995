"""From bytes to commands. upb reads any buffer, whatever the generated types say, so nothing is copied first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from protocol.pulsar_api_pb2 import BaseCommand, CommandSend

parse_command: Final = cast("Callable[[bytes | memoryview], BaseCommand]", BaseCommand.FromString)
"""google.protobuf.message.DecodeError where the bytes are no command."""

parse_send: Final = cast("Callable[[bytes | memoryview], CommandSend]", CommandSend.FromString)
"""The inside of a SEND, where the type was recognised before."""
