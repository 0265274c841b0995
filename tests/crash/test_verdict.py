"""The crash run's judgement: what is allowed after a kill, and that each thing that is not is found."""

from __future__ import annotations

from tests.crash.records import Acked, Came, Confirmed, Delivery, Message, Moves, Position
from tests.crash.verdict import (
    OFFICIAL_ACK_FINAL_NS,
    PLAIN,
    acks_final_ns,
    demand_cumulative,
    demand_individual,
    demand_receipts,
    demand_whole_entries,
    judge_acks,
    judge_delays,
    judge_moves,
    judge_producer,
)

KILL = 100


def log_of(*numbers: int, producer: str = "p") -> list[Delivery]:
    return [Delivery(Position(1, at), Message(producer, number)) for at, number in enumerate(numbers)]


def confirmed_of(*numbers: int, at_ns: int = 50) -> list[Confirmed]:
    return [Confirmed("p", number, at_ns) for number in numbers]


def test_verdict_finds_nothing_when_all_messages_came_in_order() -> None:
    verdict = judge_producer("p", confirmed_of(0, 1, 2), log_of(0, 1, 2, 3), KILL)
    assert verdict == (3, 0, 0, 0, 0, [])


def test_verdict_counts_a_confirmed_message_that_is_absent_as_lost() -> None:
    verdict = judge_producer("p", confirmed_of(0, 1, 2), log_of(0, 2), KILL)
    assert verdict.lost == 1
    assert "first is 1" in verdict.findings[0]


def test_verdict_judges_order_by_first_appearance() -> None:
    assert judge_producer("p", confirmed_of(0, 1), log_of(1, 0), KILL).out_of_order == 1
    resent = judge_producer("p", confirmed_of(0, 1, 2, at_ns=KILL + 1), log_of(0, 1, 2, 1, 2), KILL)
    assert (resent.out_of_order, resent.resent, resent.doubled) == (0, 2, 0)


def test_verdict_counts_a_second_copy_as_doubled_when_its_receipt_came_before_the_kill() -> None:
    assert judge_producer("p", confirmed_of(0), log_of(0, 0), KILL).doubled == 1
    assert judge_producer("p", [], log_of(0, 0), KILL).doubled == 0


def test_verdict_ignores_messages_of_other_producers() -> None:
    assert judge_producer("q", confirmed_of(0, 1), log_of(1, 0), KILL) == (0, 0, 0, 0, 0, [])


def acked(delivery: Delivery, at_ns: int = 10) -> Acked:
    return Acked(delivery, at_ns)


def test_verdict_expects_unacknowledged_messages_again_after_individual_acks() -> None:
    log = log_of(0, 1, 2)
    demand = demand_individual([acked(log[0]), acked(log[1], 90)], final_ns=50, log=log)
    assert demand == ({log[0]}, {log[2]})
    assert judge_acks("s", demand, {log[1], log[2]}).findings == []
    assert judge_acks("s", demand, {log[0], log[2]}).again == 1
    assert judge_acks("s", demand, set()).missing == 1


def test_verdict_takes_a_batch_as_acknowledged_only_as_a_whole_without_batch_indexes() -> None:
    batch = [Delivery(Position(1, 0), Message("p", number)) for number in range(2)]
    log = [*batch, Delivery(Position(1, 1), Message("p", 2))]
    half = demand_whole_entries([acked(batch[0])], final_ns=50, log=log)
    assert half == (set(), {batch[1], log[2]})
    whole = demand_whole_entries([acked(each) for each in batch], final_ns=50, log=log)
    assert whole == (set(batch), {log[2]})


def test_verdict_leaves_the_entry_of_a_cumulative_ack_open() -> None:
    log = log_of(0, 1, 2, 3, 4)
    demand = demand_cumulative([acked(log[1]), acked(log[3], 90)], final_ns=50, log=log)
    assert demand == ({log[0]}, {log[4]})
    assert demand_cumulative([], final_ns=50, log=log) == (set(), set(log))


def test_verdict_takes_an_ack_with_a_receipt_as_final_at_once() -> None:
    log = log_of(0, 1, 2)
    demand = demand_receipts({Position(1, 0)}, {Position(1, 0), Position(1, 1)}, log)
    assert demand == ({log[0]}, {log[2]})


def test_verdict_finds_delayed_messages_that_are_lost_or_early() -> None:
    good = [Came(0, due_ms=100, at_ms=100), Came(1, due_ms=100, at_ms=5000)]
    assert judge_delays({0, 1}, good) == (2, 0, 0, [])
    verdict = judge_delays({0, 1, 2}, [*good, Came(3, due_ms=100, at_ms=99)])
    assert verdict[:3] == (3, 1, 1)
    assert "first is 2" in verdict.findings[0]
    assert "first is 3" in verdict.findings[1]


def test_acks_are_final_earlier_when_a_process_stood_still() -> None:
    second = 10**9
    steady = range(0, 10 * second, second // 10)
    tenth = second // 10
    assert acks_final_ns(10 * second, steady) == 10 * second - OFFICIAL_ACK_FINAL_NS - tenth
    paused = [at for at in steady if not 6 * second < at < 8 * second]
    assert acks_final_ns(10 * second, steady, paused) == 6 * second - tenth
    # It stood still when the kill came.
    stopped = [at for at in steady if at <= 7 * second]
    assert acks_final_ns(10 * second, steady, stopped) == 5 * second - tenth
    assert acks_final_ns(10 * second, []) == 10 * second - OFFICIAL_ACK_FINAL_NS


def moves_of(action: str | None, *, answered: bool = True) -> Moves:
    """One transaction that has moved messages 1 and 2 of three, and a plain message 7."""
    asked = {} if action is None else {"t": action}
    return Moves({1, 2, 3}, {7}, {"t": {1, 2}}, asked, {"t"} if answered and asked else set())


def seen(*numbers: int) -> list[Message]:
    return [Message("t", number) for number in numbers] + [Message(PLAIN, 7)]


def test_verdict_takes_committed_transactions_as_whole_and_aborted_ones_as_absent() -> None:
    assert judge_moves(moves_of("COMMIT"), seen(1, 2), {3}) == (1, 0, [])
    assert judge_moves(moves_of("ABORT"), seen(), {1, 2, 3}) == (0, 1, [])
    assert judge_moves(moves_of(None), seen(), {1, 2, 3}) == (0, 1, [])


def test_verdict_lets_a_commit_without_an_answer_be_either_but_whole() -> None:
    unknown = moves_of("COMMIT", answered=False)
    assert judge_moves(unknown, seen(1, 2), {3}).findings == []
    assert judge_moves(unknown, seen(), {1, 2, 3}).findings == []
    assert any("not whole" in text for text in judge_moves(unknown, seen(1), {2, 3}).findings)


def test_verdict_finds_each_wrong_end_of_a_transaction() -> None:
    for moves, target, back, text in (
        (moves_of("COMMIT"), seen(), {1, 2, 3}, "was committed and has no messages"),
        (moves_of("ABORT"), seen(1, 2), {3}, "was not committed"),
        (moves_of(None), seen(1, 2), {3}, "never ended"),
        (moves_of("COMMIT"), seen(1, 2), {1, 3}, "were moved and come again"),
        (moves_of("COMMIT"), seen(1, 2), set(), "are lost"),
        (moves_of("COMMIT"), seen(1, 1, 2), {3}, "more than once"),
        (moves_of("COMMIT"), seen(1, 2)[:-1], {3}, "are not there once"),
    ):
        findings = judge_moves(moves, target, back).findings
        assert any(text in finding for finding in findings), (text, findings)
