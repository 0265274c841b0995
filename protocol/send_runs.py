"""Cuts runs of SENDs out of received frames.

SENDs of one producer that follow one another differ in the sequence id alone, and it is known in advance: each one follows
the messages of the SEND before. So a run costs one parse, that of its first SEND, and a comparison of some 20 bytes for each
other one. A SEND that differs in anything else begins the next run. Pure: no I/O, no clock.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from protocol.pulsar_api_pb2 import CommandSend
from protocol.sent_body import Judgement, judge_body
from protocol.varint import varint

Frame = tuple[int, int, int]
"""Offsets of a received frame: start of its command, end of its command, end of its body."""
_BEFORE_BYTES: Final = 4
"""The type of the command, and the tag and the length of the SEND in it."""
_COMMON_BYTES: Final = 6
"""The same with the tag of the producer id and its first byte."""
_HIGHEST_TAG: Final = b"\x30"
_PLAIN: Final = Judgement.PLAIN


def following_sends(
    buffer: bytearray, view: memoryview, frames: list[Frame], index: int, send: CommandSend
) -> list[memoryview]:
    """Returns the bodies of the SENDs after `frames[index]` that are in one run with it.

    There is one after it. `send` is the SEND in that frame, whose type and producer id come first. It is in no
    transaction, and its body is `Judgement.PLAIN`; so are the bodies that are returned.
    """
    bodies: list[memoryview] = []
    start, command_end, _ = frames[index]
    following, _, _ = frames[index + 1]
    # Nothing is prepared for another producer's SEND or another command: many producers may take turns.
    if buffer[following : following + _COMMON_BYTES] != buffer[start : start + _COMMON_BYTES]:
        return bodies
    sequence_id, highest, step = send.sequence_id, send.highest_sequence_id, max(1, send.num_messages)
    number = varint(sequence_id)
    before = bytes(buffer[start : start + _BEFORE_BYTES]) + b"\x08" + varint(send.producer_id) + b"\x10"
    command = buffer[start:command_end]
    after = bytes(command[len(before) + len(number) :])
    last = b""
    if highest:
        last = _HIGHEST_TAG + varint(highest)
        after = after.removesuffix(last)
    if command != before + number + after + last:
        # A client that writes its fields in another order.
        return bodies
    for start, command_end, end in islice(frames, index + 1, None):
        sequence_id += step
        expected = before + varint(sequence_id) + after
        if highest:
            highest += step
            expected += _HIGHEST_TAG + varint(highest)
        # A number of more bytes ends the run, too: it changes the length of the command.
        if buffer[start:command_end] != expected:
            break
        body = view[command_end:end]
        if judge_body(buffer, command_end, body) is not _PLAIN:
            break
        bodies.append(body)
    return bodies
