"""Judges a crash: compares the records of the clients with the messages that came back.

Law of the place: pure; no client, no clock. Every finding is a sentence that names an example.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import pairwise
from typing import NamedTuple

from tests.crash.records import Acked, Came, Confirmed, Delivery, Message, Moves, Position

OFFICIAL_ACK_FINAL_NS = 2_000_000_000
"""The Python client cannot ask for ack receipts and sends acks in groups, 100 ms later: only an ack this much
older than the kill counts as one that the broker has had. See `acks_final_ns` for a machine that stood still."""


PLAIN = "plain"
"""Producer of the messages that are in no transaction."""


class ProduceVerdict(NamedTuple):
    confirmed: int
    lost: int
    out_of_order: int
    resent: int
    """Stored twice, sent again because no receipt had come before the kill: allowed."""
    doubled: int
    """Stored twice although confirmed before the kill."""
    findings: list[str]


class Demand(NamedTuple):
    """Messages that a subscription must not deliver again, and those that it must; others may come or not."""

    final: set[Delivery]
    unacked: set[Delivery]


class AckVerdict(NamedTuple):
    final: int
    """Messages whose ack counts as final."""
    again: int
    """Of these, delivered again."""
    unacked: int
    """Messages without any attempt to acknowledge them."""
    missing: int
    """Of these, not delivered again."""
    findings: list[str]


def acks_final_ns(kill_ns: int, *records: Iterable[int]) -> int:
    """Returns the time before which an ack of the official client counts as one that the broker has had.

    `records`: of each process, the times at which something happened there. The longest pause in them before the kill
    tells for how long a busy machine let the process stand still, and an ack may take as much longer.
    """
    final_ns = kill_ns - OFFICIAL_ACK_FINAL_NS
    for times in records:
        before = [*sorted(at for at in times if at < kill_ns), kill_ns]
        final_ns -= max((later - earlier for earlier, later in pairwise(before)), default=0)
    return final_ns


def judge_producer(
    name: str, confirmed: list[Confirmed], log: list[Delivery], kill_ns: int
) -> ProduceVerdict:
    """Each confirmed message once, in order; twice only when its receipt had not come before the kill."""
    confirmed_at = {each.number: each.at_ns for each in confirmed if each.producer == name}
    times: dict[int, int] = {}
    last, late = -1, []
    for number in (each.message.number for each in log if each.message.producer == name):
        times[number] = times.get(number, 0) + 1
        if times[number] == 1 and number < last:
            late.append(number)
        last = max(last, number)
    lost = sorted(number for number in confirmed_at if number not in times)
    twice = sorted(number for number, count in times.items() if count > 1)
    doubled = [number for number in twice if confirmed_at.get(number, kill_ns) < kill_ns]
    findings = []
    for numbers, text in (
        (lost, "confirmed messages are not there"),
        (late, "messages stand after later ones"),
        (doubled, "messages stand twice although confirmed before the kill"),
    ):
        if numbers:
            findings.append(f"{name}: {len(numbers)} {text}, the first is {numbers[0]}")
    resent = len(twice) - len(doubled)
    return ProduceVerdict(len(confirmed_at), len(lost), len(late), resent, len(doubled), findings)


class DelayVerdict(NamedTuple):
    """Delayed messages of a round."""

    confirmed: int
    lost: int
    early: int
    """Came before their time."""
    findings: list[str]


def judge_delays(confirmed: Set[int], came: Iterable[Came]) -> DelayVerdict:
    """Each confirmed message came, and none before its time; the broker of this test is strict."""
    arrivals = list(came)
    lost = sorted(confirmed - {each.number for each in arrivals})
    early = sorted(each.number for each in arrivals if each.at_ms < each.due_ms)
    findings = [
        f"delayed: {len(numbers)} {text}, the first is {numbers[0]}"
        for numbers, text in ((lost, "confirmed messages did not come"), (early, "came before their time"))
        if numbers
    ]
    return DelayVerdict(len(confirmed), len(lost), len(early), findings)


class MoveVerdict(NamedTuple):
    """Transactions of a round."""

    committed: int
    """Transactions whose commit was answered, or whose messages are all there."""
    given_up: int
    """Aborted, or left open by a client that vanished."""
    findings: list[str]


def judge_moves(moves: Moves, target: Iterable[Message], back: Set[int]) -> MoveVerdict:
    """Each message of the source was moved exactly once, by a committed transaction, or comes again.

    `target` are the messages that readers of the target get, `back` the numbers that the source delivers again. A commit
    without an answer may have come to the broker or not, but as a whole.
    """
    times: dict[Message, int] = {}
    for message in target:
        times[message] = times.get(message, 0) + 1
    visible: dict[int, int] = {}
    for message, count in times.items():
        if message.producer != PLAIN:
            visible[message.number] = visible.get(message.number, 0) + count
    findings = [
        f"transaction {text}"
        for txn, numbers in moves.moved.items()
        for text in _wrong_transaction(moves, txn, [times.get(Message(txn, number), 0) for number in numbers])
    ]
    strange = {each.producer for each in times} - {*moves.asked, PLAIN}
    findings += [f"transaction {txn} was never ended and has messages" for txn in sorted(strange)]
    for numbers, text in (
        (
            {number for number in moves.plain if times.get(Message(PLAIN, number), 0) != 1},
            "are not there once",
        ),
        ({number for number, count in visible.items() if count > 1}, "were moved more than once"),
        (visible.keys() & back, "were moved and come again"),
        (moves.stored - visible.keys() - back, "are lost"),
    ):
        if numbers:
            findings.append(f"transactions: {len(numbers)} messages {text}, the first is {min(numbers)}")
    whole = {each.producer for each in times} - {PLAIN}
    return MoveVerdict(len(whole), len(moves.moved.keys() - whole), findings)


def _wrong_transaction(moves: Moves, txn: str, counts: list[int]) -> Iterator[str]:
    commit, seen = moves.asked.get(txn) == "COMMIT", sum(counts)
    if seen and not commit:
        yield f"{txn} was not committed and has {seen} messages"
    elif 0 < seen != len(counts):
        yield f"{txn} is not whole: {seen} of {len(counts)} messages"
    elif not seen and commit and txn in moves.answered:
        yield f"{txn} was committed and has no messages"


def demand_individual(acked: list[Acked], final_ns: int, log: list[Delivery]) -> Demand:
    """Acks one by one, batch members too: those before `final_ns` stay, messages without an ack come again."""
    final = {each.delivery for each in acked if each.at_ns <= final_ns}
    return Demand(final, set(log) - {each.delivery for each in acked})


def demand_whole_entries(acked: list[Acked], final_ns: int, log: list[Delivery]) -> Demand:
    """The same where the client tells the broker of a batch only when all its messages are acked."""
    in_time = {each.delivery for each in acked if each.at_ns <= final_ns}
    final: set[Delivery] = set()
    for members in by_position(log).values():
        if all(member in in_time for member in members):
            final.update(members)
    return Demand(final, set(log) - {each.delivery for each in acked})


def demand_cumulative(acked: list[Acked], final_ns: int, log: list[Delivery]) -> Demand:
    """Entries before the last final ack stay acked, entries after the very last one come again.

    The entry of an ack itself may do either: a batch counts as acked only as a whole.
    """
    nowhere = Position(-1, -1)
    final_to = max((each.delivery.position for each in acked if each.at_ns <= final_ns), default=nowhere)
    tried_to = max((each.delivery.position for each in acked), default=nowhere)
    final = {each for each in log if each.position < final_to}
    return Demand(final, {each for each in log if each.position > tried_to})


def demand_receipts(answered: set[Position], tried: set[Position], log: list[Delivery]) -> Demand:
    """Whole entries acked with a receipt: final from the receipt on, however short before the kill."""
    final = {each for each in log if each.position in answered}
    return Demand(final, {each for each in log if each.position not in tried})


def judge_acks(name: str, demand: Demand, back: set[Delivery]) -> AckVerdict:
    """Compares the messages that came again with those that had to and those that must not."""
    again, missing = demand.final & back, demand.unacked - back
    findings = []
    if again:
        findings.append(f"{name}: {len(again)} acknowledged messages came again, {_example(again)}")
    if missing:
        findings.append(f"{name}: {len(missing)} unacknowledged ones did not come again, {_example(missing)}")
    return AckVerdict(len(demand.final), len(again), len(demand.unacked), len(missing), findings)


def by_position(log: list[Delivery]) -> dict[Position, list[Delivery]]:
    entries: dict[Position, list[Delivery]] = {}
    for each in log:
        entries.setdefault(each.position, []).append(each)
    return entries


def _example(deliveries: set[Delivery]) -> str:
    position, message = min(deliveries)
    return f"the first is {message.producer}:{message.number} at {position.ledger}:{position.entry}"
