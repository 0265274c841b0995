"""Parses Pulsar commands from received bytes, without a copy.

The generated types demand `bytes`, but protobuf's C parser (upb) reads any buffer; the casts say so to mypy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from protocol.pulsar_api_pb2 import BaseCommand, CommandSend

parse_command: Final = cast("Callable[[bytes | memoryview], BaseCommand]", BaseCommand.FromString)
"""Parses a BaseCommand. Raises google.protobuf.message.DecodeError for other bytes."""

parse_send: Final = cast("Callable[[bytes | memoryview], CommandSend]", CommandSend.FromString)
"""Parses the CommandSend inside of a command whose type the caller has recognised as SEND."""
