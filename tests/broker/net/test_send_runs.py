"""Consecutive SENDs of a producer pass as one run; all that cuts a run leaves its answers complete and in order."""

from __future__ import annotations

import asyncio
import random
import struct
from dataclasses import replace

import pytest

from broker.service.ports import Sends
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.position import Position
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json
from protocol.bookie_frame import RC_FENCED, RC_IO_ERROR
from protocol.pulsar_api_pb2 import BaseCommand
from tests.fakes.client import Client, Port
from tests.fakes.messages import SENT_AT_MS, message
from tests.fakes.stage import TOPIC, Stage

DELIVER_AT_MS = SENT_AT_MS + 60_000


def frame(
    sequence_id: int,
    *,
    producer_id: int = 0,
    highest: int = 0,
    corrupt: bool = False,
    transaction: bool = False,
    delayed: bool = False,
    size: int = 1,
    body: bytes | None = None,
) -> bytes:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = producer_id
    command.send.sequence_id = sequence_id
    if highest:
        command.send.highest_sequence_id = highest
        command.send.num_messages = highest - sequence_id + 1
    if transaction:
        command.send.txnid_most_bits = command.send.txnid_least_bits = 1
    packed = command.SerializeToString()
    if body is None:
        body = message(b"x" * size, sequence_id=sequence_id, deliver_at_ms=DELIVER_AT_MS if delayed else 0)
    if corrupt:
        body = body[:-1] + bytes((body[-1] ^ 1,))
    return struct.pack(">II", 4 + len(packed) + len(body), len(packed)) + packed + body


class Scene:
    """A client with a producer on a topic."""

    def __init__(self, client: Client, topic: PersistentTopic) -> None:
        self.client = client
        self.stage = client.port.stage
        self.topic = topic

    def feed(self, *frames: bytes) -> None:
        """The frames arrive in one read."""
        self.client.feed(b"".join(frames))

    async def answers(self) -> list[tuple[str, int]]:
        """("receipt", id), ("duplicate", id), ("refused", id) or (command, -1), as they came."""
        found = []
        for command in await self.client.hear():
            if command.type == BaseCommand.SEND_RECEIPT:
                again = command.send_receipt.message_id.ledgerId == 2**64 - 1
                found.append(("duplicate" if again else "receipt", command.send_receipt.sequence_id))
            elif command.type == BaseCommand.SEND_ERROR:
                found.append(("refused", command.send_error.sequence_id))
            else:
                found.append((BaseCommand.Type.Name(command.type), -1))
        return found

    async def limit(self, rate: int) -> None:
        """Sets the publish rate of the topic, in messages a second; 0 takes it away."""
        namespaces, registry = self.stage.namespaces, self.stage.registry
        value: Json = (
            {"publishThrottlingRateInMsg": rate, "publishThrottlingRateInByte": -1} if rate else None
        )
        await self.stage.run(namespaces.set_topic_policy(TOPIC, "publishRate", value))
        await self.stage.run(registry.topic_changed(TOPIC))

    async def answers_at(self, rate: int, count: int) -> list[tuple[str, int]]:
        """The answers to so many SENDs of one read, since which the rate holds: never more receipts than it allows."""
        heard: list[tuple[str, int]] = []
        for tenths in range(20 * (count + 1)):
            heard += await self.answers()
            assert [name for name, _ in heard].count("receipt") <= rate + rate * tenths // 10
            if len(heard) >= count:
                return heard
            self.stage.now_ns += 100_000_000
            await self.stage.fire()
        raise AssertionError("they wait for ever")

    def assert_nothing_is_pending(self) -> None:
        gate = self.client.cnx.gate
        assert (gate.pending_publishes, gate.pending_bytes) == (0, 0)
        assert all(port.unanswered == 0 for port in self.client.cnx.producers.values())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """SENDs of each run, as it reaches a topic."""
    seen: list[int] = []
    plain = PersistentTopic.publish

    def publish(topic: PersistentTopic, sends: Sends) -> None:
        seen.append(len(sends.bodies))
        plain(topic, sends)

    monkeypatch.setattr(PersistentTopic, "publish", publish)
    return seen


async def scene_on(stage: Stage | None = None) -> Scene:
    client = await Port(stage or Stage()).client()
    client.produce(topic=TOPIC)
    assert await client.names() == ["PRODUCER_SUCCESS"]
    return Scene(client, await client.port.stage.open())


def receipts(*sequence_ids: int) -> list[tuple[str, int]]:
    return [("receipt", sequence_id) for sequence_id in sequence_ids]


def refusals(*sequence_ids: int) -> list[tuple[str, int]]:
    return [("refused", sequence_id) for sequence_id in sequence_ids]


async def test_sends_of_one_read_are_one_run_with_a_receipt_each(runs: list[int]) -> None:
    scene = await scene_on()
    scene.feed(*map(frame, range(8)))
    assert runs == [8]
    found = await scene.client.hear()
    assert [one.send_receipt.sequence_id for one in found] == list(range(8))
    assert [one.send_receipt.message_id.entryId for one in found] == list(range(8))
    topic = scene.topic
    assert (topic.entries_in, topic.messages_in, topic.ledger.stats.entries_added) == (8, 8, 8)
    scene.assert_nothing_is_pending()


async def test_stored_entries_of_a_run_have_the_bytes_and_the_index_of_their_sends(runs: list[int]) -> None:
    scene = await scene_on(Stage())
    bodies = [message(b"%d" % number, sequence_id=number) for number in range(5)]
    scene.feed(*(frame(number, body=body) for number, body in enumerate(bodies)))
    await scene.answers()
    log = scene.topic.ledger
    entries = [
        await scene.stage.run(log.read_entry(Position(log.last_confirmed.ledger_id, i))) for i in range(5)
    ]
    assert [bytes(entry.body) for entry in entries] == bodies
    assert runs == [5]


async def test_batches_of_one_size_are_one_run(runs: list[int]) -> None:
    scene = await scene_on()
    scene.feed(*(frame(first, highest=first + 9) for first in range(0, 60, 10)))
    assert runs == [6]
    found = await scene.client.hear()
    answered = [(one.send_receipt.sequence_id, one.send_receipt.highest_sequence_id) for one in found]
    assert answered == [(first, first + 9) for first in range(0, 60, 10)]
    assert scene.topic.messages_in == 60


@pytest.mark.parametrize(
    ("sequence_ids", "expected"),
    [
        ((0, 1, 2, 5, 6), [3, 2]),
        ((3, 3, 4), [1, 2]),
        ((126, 127, 128, 129), [2, 2]),
        ((16382, 16383, 16384), [2, 1]),
        ((2**28 - 2, 2**28 - 1, 2**28), [2, 1]),
    ],
)
async def test_run_ends_where_the_sequence_ids_do_not_follow_or_grow_longer(
    runs: list[int], sequence_ids: tuple[int, ...], expected: list[int]
) -> None:
    scene = await scene_on()
    scene.feed(*map(frame, sequence_ids))
    assert runs == expected
    assert await scene.answers() == receipts(*sequence_ids)
    scene.assert_nothing_is_pending()


async def test_sends_of_two_producers_in_turn_are_runs_of_one(runs: list[int]) -> None:
    scene = await scene_on()
    scene.client.produce(1, TOPIC)
    await scene.client.hear()
    scene.feed(*(frame(number // 2, producer_id=number % 2) for number in range(6)))
    assert runs == [1] * 6
    assert await scene.answers() == receipts(0, 0, 1, 1, 2, 2)


async def test_damaged_send_in_the_middle_ends_the_producer_after_its_answer(runs: list[int]) -> None:
    scene = await scene_on()
    scene.feed(*(frame(number, corrupt=number == 3) for number in range(8)))
    assert runs == [3]
    answers = await scene.answers()
    assert answers == [*receipts(0, 1, 2), *refusals(3), ("CLOSE_PRODUCER", -1)]
    assert scene.client.cnx.context.counters.corrupt_sends == 1
    scene.assert_nothing_is_pending()


async def test_send_in_a_transaction_cuts_a_run_and_is_answered_in_its_place(runs: list[int]) -> None:
    scene = await scene_on()
    scene.feed(*(frame(number, transaction=number == 2) for number in range(6)))
    assert runs == [2, 3]
    assert await scene.answers() == receipts(0, 1) + refusals(2) + receipts(3, 4, 5)
    scene.assert_nothing_is_pending()


async def test_delayed_message_is_a_run_of_its_own(runs: list[int]) -> None:
    scene = await scene_on()
    scene.feed(*(frame(number, delayed=number == 2) for number in range(5)))
    assert runs == [2, 1, 2]
    assert await scene.answers() == receipts(0, 1, 2, 3, 4)


async def test_publish_rate_pauses_in_the_middle_of_what_arrived(runs: list[int]) -> None:
    stage = Stage(topic_publish_messages=3)
    scene = await scene_on(stage)
    scene.feed(*map(frame, range(8)))
    assert await scene.answers() == receipts(0, 1, 2)
    assert runs == [1, 1, 1]
    heard = []
    for _ in range(40):
        stage.now_ns += 100_000_000
        await stage.fire()
        heard += await scene.answers()
    assert [answer for answer in heard if answer[1] >= 0] == receipts(3, 4, 5, 6, 7)
    scene.assert_nothing_is_pending()


async def test_message_above_the_size_of_the_policy_is_refused_alone(runs: list[int]) -> None:
    scene = await scene_on()
    scene.topic.message_bytes_max, scene.topic.single_sends = 60, True
    scene.feed(*(frame(number, size=100 if number == 1 else 1) for number in range(4)))
    assert runs == [1] * 4
    assert await scene.answers() == receipts(0) + refusals(1) + receipts(2, 3)


@pytest.mark.parametrize("rc", [RC_IO_ERROR, RC_FENCED])
async def test_run_with_an_entry_that_is_not_stored_is_refused_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, runs: list[int], rc: int
) -> None:
    """A full disk, or a fence by another broker."""
    scene = await scene_on()
    ledgers = scene.stage.ledgers
    plain = ledgers._store
    monkeypatch.setattr(
        ledgers, "_store", lambda ledger, entry, *rest: rc if entry == 5 else plain(ledger, entry, *rest)
    )
    port = scene.client.cnx.producers[0]
    scene.feed(*map(frame, range(3)))
    scene.feed(*map(frame, range(3, 8)))
    scene.feed(frame(8), frame(9, transaction=True))
    assert runs == [3, 5, 1]
    expected = [*receipts(0, 1, 2), ("CLOSE_PRODUCER", -1), *refusals(3, 4, 5, 6, 7, 8, 9)]
    assert await scene.answers() == expected
    assert port.unanswered == 0
    scene.assert_nothing_is_pending()
    assert scene.topic.ledger.last_confirmed.entry_id == 2


async def test_unload_confirms_what_was_added_and_ignores_what_comes_later(runs: list[int]) -> None:
    scene = await scene_on()
    scene.feed(*map(frame, range(4)))
    unload = asyncio.ensure_future(scene.stage.registry.unload(parse_topic_name(TOPIC)))
    await asyncio.sleep(0)
    scene.feed(*map(frame, range(4, 8)))
    await scene.stage.run(unload)
    found = await scene.answers()
    found.remove(("CLOSE_PRODUCER", -1))
    assert found == receipts(0, 1, 2, 3)
    scene.assert_nothing_is_pending()


async def test_closing_topic_stores_no_send_of_a_run(runs: list[int]) -> None:
    scene = await scene_on()
    scene.feed(*map(frame, range(3)))
    scene.topic.closed = True
    scene.feed(*map(frame, range(3, 6)))
    assert runs == [3, 3]
    assert await scene.answers() == receipts(0, 1, 2)
    scene.assert_nothing_is_pending()


async def test_roll_of_the_ledger_cuts_a_run(runs: list[int]) -> None:
    scene = await scene_on(Stage(entries_per_ledger=5))
    scene.feed(*map(frame, range(12)))
    assert runs == [12]
    found = await scene.client.hear()
    assert [one.send_receipt.sequence_id for one in found] == list(range(12))
    places = [(one.send_receipt.message_id.ledgerId, one.send_receipt.message_id.entryId) for one in found]
    assert [entry for _, entry in places] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert sorted(places) == places
    scene.assert_nothing_is_pending()


async def test_runs_that_wait_for_a_ledger_keep_their_order_when_a_roll_cuts_them(runs: list[int]) -> None:
    scene = await scene_on(Stage(entries_per_ledger=5))
    # No ledger has begun yet, so these wait.
    for first in range(0, 24, 8):
        scene.feed(*map(frame, range(first, first + 8)))
    assert runs == [8, 8, 8]
    assert await scene.answers() == receipts(*range(24))
    scene.assert_nothing_is_pending()


async def test_repeated_sends_at_the_front_of_a_run_get_the_receipt_of_a_duplicate(runs: list[int]) -> None:
    scene = await scene_on(Stage(deduplication=True))
    scene.feed(*map(frame, range(6)))
    assert await scene.answers() == receipts(*range(6))
    scene.feed(*map(frame, range(3, 9)))
    assert runs == [6, 6]
    assert await scene.answers() == [("duplicate", 3), ("duplicate", 4), ("duplicate", 5), *receipts(6, 7, 8)]
    assert scene.topic.ledger.stats.entries_added == 9
    assert scene.topic.last_sequence_id("standalone-0-0") == 8
    scene.assert_nothing_is_pending()


async def test_repeated_sends_without_an_outcome_are_refused_after_the_receipts_of_the_first(
    runs: list[int],
) -> None:
    scene = await scene_on(Stage(deduplication=True))
    scene.feed(*map(frame, range(4)))
    scene.feed(*map(frame, range(2, 6)))
    assert runs == [4, 4]
    assert await scene.answers() == receipts(0, 1, 2, 3) + refusals(2, 3) + receipts(4, 5)
    scene.assert_nothing_is_pending()


async def test_closing_producer_waits_for_its_runs(runs: list[int]) -> None:
    scene = await scene_on()
    scene.feed(*(frame(number, corrupt=number == 4) for number in range(5)))
    scene.client.say(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=0)
    assert await scene.answers() == [*receipts(0, 1, 2, 3), *refusals(4), ("SUCCESS", -1)]
    scene.assert_nothing_is_pending()


async def test_run_on_a_non_persistent_topic_gets_a_receipt_for_each_send() -> None:
    client = await Port(Stage()).client()
    client.produce(topic="non-persistent://public/default/t")
    await client.hear()
    client.feed(b"".join(map(frame, range(5))))
    found = await client.hear()
    ids = [(one.send_receipt.sequence_id, one.send_receipt.message_id.entryId) for one in found]
    assert ids == [(number, 0) for number in range(5)]
    assert client.cnx.gate.pending_bytes == 0


@pytest.mark.parametrize("seed", range(20))
async def test_every_send_is_answered_once_and_in_order_whatever_cuts_its_run(
    seed: int, runs: list[int]
) -> None:
    chance = random.Random(seed)
    scene = await scene_on(Stage(entries_per_ledger=chance.choice([7, 50_000])))
    expected: list[tuple[str, int]] = []
    heard: list[tuple[str, int]] = []
    fence = pytest.MonkeyPatch()
    sequence_id = ends = rates = 0
    for _ in range(30):
        frames = []
        before = len(expected)
        end = chance.choices(["", "corrupt", "unload", "fence"], [12, 1, 1, 1])[0]
        rate = chance.choice([0, 0, 0, 1, 4]) if not end else 0
        if end in ("unload", "fence") or rate:
            heard += await scene.answers()
        if end == "fence":
            fence.setattr(scene.stage.ledgers, "_store", lambda *_: RC_FENCED)
        for _ in range(chance.randint(1, 20)):
            sequence_id += 1 if chance.random() < 0.95 else 7
            kind = chance.choices(["plain", "transaction", "delayed"], [20, 2, 1])[0]
            named = {} if kind == "plain" else {kind: True}
            frames.append(frame(sequence_id, **named))  # type: ignore[arg-type]
            expected.append(
                ("refused" if kind == "transaction" or end == "fence" else "receipt", sequence_id)
            )
        # The producer is closed before these, so they are ignored.
        late = [frame(sequence_id + number) for number in range(2, 2 + chance.randint(0, 4))]
        if end == "corrupt":
            frames += [frame(sequence_id + 1, corrupt=True), *late]
            expected.append(("refused", sequence_id + 1))
        await scene.limit(rate)
        scene.feed(*frames)
        if rate:
            heard += await scene.answers_at(rate, len(frames))
            rates += 1
        if end == "unload":
            unload = asyncio.ensure_future(scene.stage.registry.unload(parse_topic_name(TOPIC)))
            await asyncio.sleep(0)
            scene.feed(*late)
            await scene.stage.run(unload)
        if end or chance.random() < 0.3:
            heard += await scene.answers()
        if end == "unload":
            # Those that waited for a ledger have no answer; their client sends them again.
            expected[before:] = [one for one in expected[before:] if one in heard]
        if end:
            ends += 1
            fence.undo()
            scene.client.produce(topic=TOPIC)
            assert await scene.answers() == [("PRODUCER_SUCCESS", -1)]
    heard += await scene.answers()
    assert heard.count(("CLOSE_PRODUCER", -1)) == ends
    assert [answer for answer in heard if answer[1] >= 0] == expected
    assert max(runs) > 3
    assert rates > 0
    scene.assert_nothing_is_pending()


async def test_a_sequence_id_with_the_bytes_of_a_delivery_time_asks_for_no_delay() -> None:
    scene = await scene_on()
    # 152 is the varint 0x98 0x01: the tag of `deliver_at_time`.
    scene.feed(*map(frame, range(150, 155)))
    assert await scene.answers() == receipts(*range(150, 155))
    assert not scene.topic.delays.asked
    scene.feed(frame(155, delayed=True))
    assert await scene.answers() == receipts(155)
    assert scene.topic.delays.asked


async def test_an_unreadable_message_that_may_be_delayed_is_stored_as_it_is() -> None:
    scene = await scene_on()
    scene.topic.delays.policy = replace(scene.topic.delays.policy, delay_max_ms=1000)
    body = struct.pack(">I", 9) + b"\xff" * 7 + b"\x98\x01"
    scene.feed(frame(0, body=body))
    assert await scene.answers() == receipts(0)
