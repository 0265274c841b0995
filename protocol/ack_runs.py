"""Finds runs in acknowledgements: entries that follow one another, in one ACK or in several of one read.

Clients gather acknowledgements and send them in the order of the log. So the bytes of one message id differ from those of
the id before in the entry id alone, and it is known in advance. A run costs the making and one comparison of the bytes that
are expected; reading an id through its protobuf object costs several times as much. Pure: no I/O, no clock.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import Final

from protocol.pulsar_api_pb2 import CommandAck, MessageIdData
from protocol.send_runs import Frame
from protocol.varint import read_varint, varint, varints

AckRun = tuple[int, int, int]
"""(ledger id, first entry id, last entry id)"""
_ACK: Final = b"\x08\x0a\x52"
"""The type of the command, and the tag of the ACK in it."""
_ID_TAG: Final = 0x1A
_LOOKED_AT: Final = 8
"""Runs after which `runs_of_ids` gives up when they are short."""
_GROWTH: Final = 8
_SIZES: Final = struct.Struct(">II").pack


def runs_of_ids(command: bytes, request: CommandAck) -> list[AckRun] | None:
    """Returns the message ids of an ACK as runs, in their order.

    None for ids that have more than a position (an ack set), for ids that rarely follow one another, and for an ACK whose
    fields come in an order that no known client writes. `command` is the frame's command, and `request` the ACK in it.
    """
    ids = request.message_id
    at = _first_id(command, request)
    if not at:
        return None
    runs: list[AckRun] = []
    index, count = 0, len(ids)
    while index < count:
        if len(runs) >= _LOOKED_AT and index < 2 * len(runs):
            # Each run costs more than an id that is read by itself.
            return None
        first = ids[index]
        pieces = _pieces(command, at, first)
        if pieces is None or first.ack_set:
            return None
        before, after = pieces
        entry_id = first.entryId
        width = len(before) + len(varint(entry_id)) + len(after)
        following = _following(command, at + width, len(command), before, entry_id + 1, after)
        runs.append((first.ledgerId, entry_id, entry_id + following))
        index += following + 1
        at += (following + 1) * width
    return runs


def _first_id(command: bytes, request: CommandAck) -> int:
    """Returns the offset of the first message id, 0 where it is not after the ACK's first two fields."""
    if not command.startswith(_ACK):
        return 0
    _, at = read_varint(command, len(_ACK))
    fields = b"\x08" + varint(request.consumer_id) + b"\x10" + varint(request.ack_type)
    return at + len(fields) if command.startswith(fields, at) else 0


def _pieces(command: bytes, at: int, message_id: MessageIdData) -> tuple[bytes, bytes] | None:
    """Returns the bytes before and after the entry id of the message id whose field is at `at`; None for another field."""
    # A length of two bytes belongs to an id with an ack set or with bytes of its own.
    if at + 1 >= len(command) or command[at] != _ID_TAG or command[at + 1] > 0x7F:
        return None
    end = at + 2 + command[at + 1]
    before = command[at : at + 2] + b"\x08" + varint(message_id.ledgerId) + b"\x10"
    number = varint(message_id.entryId)
    if not command.startswith(before + number, at):
        return None
    return before, command[at + len(before) + len(number) : end]


def following_acks(buffer: bytearray, frames: list[Frame], index: int, request: CommandAck) -> int:
    """Returns how many of the frames after `frames[index]` acknowledge one entry each that follow the one in that frame.

    There is one after it. `request` is the ACK in it, with one message id; everything else is the same in all.
    """
    message_id = request.message_id[0]
    entry_id = message_id.entryId
    number = varint(entry_id + 1)
    _, command_end, _ = frames[index + 1]
    # Nothing is prepared for scattered acknowledgements.
    if buffer[command_end - len(number) : command_end] != number:
        return 0
    start, command_end, end = frames[index]
    command = bytes(buffer[start:command_end])
    ledger, number = varint(message_id.ledgerId), varint(entry_id)
    field = b"%c%c\x08%b\x10%b" % (_ID_TAG, len(ledger) + len(number) + 2, ledger, number)
    # The id is the last field and has nothing but the position.
    if end != command_end or not command.endswith(field):
        return 0
    before = _SIZES(len(command) + 4, len(command)) + command[: -len(number)]
    return _following(buffer, end, frames[-1][2], before, entry_id + 1, b"")


def _following(data: bytes | bytearray, at: int, end: int, before: bytes, number: int, after: bytes) -> int:
    """Returns how often `before`, a number and `after` stand one after the other from `at` on, with rising numbers.

    A number of more bytes than the one before ends the run, because it changes the lengths in `before`.
    """
    width = len(before) + len(varint(number - 1)) + len(after)
    possible = (end - at) // width
    between = after + before
    # Few are expected first: an ACK without runs then costs little.
    count, tried = 0, 1
    while count < possible:
        tried = min(tried, possible - count)
        numbers = varints(range(number + count, number + count + tried))
        expected = before + between.join(numbers) + after
        start = at + count * width
        found = data[start : start + len(expected)]
        if found != expected:
            return count + bisect_left(
                range(1, tried + 1), True, key=lambda ids: found[: ids * width] != expected[: ids * width]
            )
        count += tried
        tried *= _GROWTH
    return count
