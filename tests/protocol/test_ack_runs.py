"""Runs in acknowledgements name exactly the positions that protobuf reads."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from protocol.ack_runs import following_acks, runs_of_ids
from protocol.pulsar_api_pb2 import BaseCommand, CommandAck
from protocol.send_runs import Frame

Key = tuple[int, int]

edges = st.sampled_from([0, 1, 120, 16_370, 2_097_140, 2**64 - 5])
"""Places near which the number of bytes of an entry id changes."""
parts = st.lists(st.tuples(st.sampled_from([0, 7, 300]), edges, st.integers(1, 700)), max_size=6)


def keys_of(pieces: list[tuple[int, int, int]]) -> list[Key]:
    return [
        (ledger_id, (first + step) % 2**64) for ledger_id, first, count in pieces for step in range(count)
    ]


def ack_of(keys: list[Key], **values: int) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 3, CommandAck.Individual
    for name, value in values.items():
        setattr(command.ack, name, value)
    for ledger_id, entry_id in keys:
        command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    return command


def runs_in(command: BaseCommand) -> list[tuple[int, int, int]] | None:
    return runs_of_ids(command.SerializeToString(), command.ack)


def spread(runs: list[tuple[int, int, int]]) -> list[Key]:
    return [(ledger_id, entry_id) for ledger_id, first, last in runs for entry_id in range(first, last + 1)]


@given(parts)
def test_runs_of_one_ack_are_its_positions(pieces: list[tuple[int, int, int]]) -> None:
    keys = keys_of(pieces)
    runs = runs_in(ack_of(keys, request_id=9))
    assert runs is not None
    assert spread(runs) == keys
    # An id of more bytes ends a run; each piece has one at most, and one more where it begins anew at 0.
    assert len(runs) <= 3 * len(pieces)


def test_scattered_positions_are_no_runs() -> None:
    assert runs_in(ack_of([(1, 2 * number) for number in range(100)])) is None


def test_few_scattered_positions_are_runs_of_one() -> None:
    assert runs_in(ack_of([(1, 0), (1, 2), (2, 0)])) == [(1, 0, 0), (1, 2, 2), (2, 0, 0)]


def test_an_ack_set_anywhere_leaves_no_runs() -> None:
    for place in (0, 5, 9):
        command = ack_of([(1, number) for number in range(10)])
        command.ack.message_id[place].ack_set.append(2)
        assert runs_in(command) is None
    command.ack.message_id[9].ack_set.extend([2**62] * 20)
    assert runs_in(command) is None


def test_other_fields_of_a_position_change_nothing() -> None:
    command = ack_of([(1, number) for number in range(10)])
    for one in command.ack.message_id:
        one.partition, one.batch_index = -1, 4
    assert runs_in(command) == [(1, 0, 9)]


def test_fields_in_another_order_are_no_runs() -> None:
    command = ack_of([(1, 0), (1, 1)])
    ids = command.SerializeToString()[-12:]
    turned = BaseCommand.FromString(b"\x08\x0a\x52\x10" + ids + b"\x08\x03\x10\x00")
    assert turned == command
    assert runs_of_ids(b"\x08\x0a\x52\x10" + ids + b"\x08\x03\x10\x00", turned.ack) is None


def received(commands: list[BaseCommand]) -> tuple[bytearray, list[Frame]]:
    buffer, frames = bytearray(), list[Frame]()
    for command in commands:
        packed = command.SerializeToString()
        buffer += struct.pack(">II", len(packed) + 4, len(packed)) + packed
        frames.append((len(buffer) - len(packed), len(buffer), len(buffer)))
    return buffer, frames


@given(st.lists(st.tuples(st.just(5), edges, st.integers(1, 300)), min_size=1, max_size=3))
def test_following_acks_are_those_of_the_next_entries(pieces: list[tuple[int, int, int]]) -> None:
    keys = keys_of(pieces)
    commands = [ack_of([key]) for key in keys]
    buffer, frames = received(commands)
    index = 0
    while index + 1 < len(frames):
        following = following_acks(buffer, frames, index, commands[index].ack)
        expected = [(5, keys[index][1] + step) for step in range(following + 1)]
        assert keys[index : index + following + 1] == expected
        after = index + following + 1
        if after < len(keys) and keys[after][1] == keys[after - 1][1] + 1:
            assert len(commands[after].SerializeToString()) != len(commands[index].SerializeToString())
        index = after


def test_an_entry_id_of_more_bytes_ends_a_run() -> None:
    commands = [ack_of([(5, number)]) for number in range(120, 140)]
    assert following_acks(*received(commands), 0, commands[0].ack) == 7
    assert following_acks(*received(commands), 8, commands[8].ack) == 11
    assert runs_in(ack_of([(5, number) for number in range(120, 140)])) == [(5, 120, 127), (5, 128, 139)]


def test_an_ack_of_another_consumer_type_or_ledger_follows_none() -> None:
    for change in ({"consumer_id": 4}, {"ack_type": 1}, {"request_id": 1}, {"validation_error": 1}):
        commands = [ack_of([(5, 0)]), ack_of([(5, 1)], **change)]
        assert following_acks(*received(commands), 0, commands[0].ack) == 0
    commands = [ack_of([(5, 0)]), ack_of([(6, 1)])]
    assert following_acks(*received(commands), 0, commands[0].ack) == 0
