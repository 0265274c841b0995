"""What `counting` finds in the events of a program, and that it finds each violation."""

from __future__ import annotations

import pytest

from tests.interop.counting import Counts

ONCE = (
    "ready",
    "sent single 1 1",
    "confirmed single 1 1 7:0:0",
    "received alone single 1 1 7:0:0",
    "received keys single 1 1 7:0:0",
)
OTHER = (
    "sent single 2 2",
    "confirmed single 2 2 7:0:0",
    "received alone single 2 2 7:0:0",
    "received keys single 2 2 7:0:0",
)
SECOND = ("sent single 1 21", "confirmed single 1 21 7:1:0")


def judged(*lines: str) -> Counts:
    counts = Counts()
    for second, line in enumerate(lines):
        counts.take(line, second)
    return counts


def test_counts_are_complete_once_every_subscription_has_each_confirmed_message() -> None:
    counts = judged(*ONCE)
    assert counts.is_complete()
    assert counts.findings() == []
    assert counts.summary() == (
        "1 sent, 1 confirmed, 0 failed, 2 received by 2 subscriptions, 0 doubled (0 stored again), 0 lost, "
        "0 out of order, slowest receipt 1.0 s"
    )
    assert not judged(*ONCE[:-1]).is_complete()
    assert not judged(*ONCE, "sent single 1 21").is_complete()


def test_message_that_was_sent_again_may_come_twice_from_two_positions() -> None:
    counts = judged(*ONCE, "received alone single 1 1 7:5:0", "received keys single 1 1 7:0:0")
    assert counts.findings() == []
    assert ", 2 doubled (1 stored again)" in counts.summary()


def test_copies_after_a_receipt_are_told_from_copies_before_it() -> None:
    before = "received alone single 1 1 6:12:0"
    assert judged(*ONCE, before).confirmed_before() == []
    after = judged(*ONCE, before, "received alone single 1 1 7:5:0").confirmed_before()
    assert len(after) == 1
    assert "its receipt is that of 7:0:0" in after[0]


def test_pause_of_a_partition_is_the_longest_wait_of_a_send_around_the_begin_of_a_later_ledger() -> None:
    counts = judged(
        *ONCE,  # A first ledger is none.
        "sent single 1 21",
        "sent single 1 41",
        "confirmed single 1 21 7:1:0",
        "confirmed single 1 41 9:0:0",  # Waited for 2 s: another broker has the partition.
        "sent single 1 61",
        "sent single 2 2",  # Of another partition.
        "confirmed single 2 2 8:0:0",
        "confirmed single 1 61 9:1:0",  # For 3 s, but it was sent to the ledger.
    )
    assert counts.pauses_s("single") == [2]
    assert counts.pauses_s("batched") == []


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        (ONCE[:-1], "keys has not got Name(topic='single', key='1', number=1) from 7:0:0 but from nowhere"),
        ((*ONCE[:-1], "received keys single 1 1 7:9:0"), "from 7:0:0 but from {'7:9:0'}"),
        (
            (*ONCE, "received alone single 1 41 7:2:0", "received alone single 1 21 7:1:0"),
            "after a later one",
        ),
        ((*ONCE, "received alone single 1 21 7:1:0", *SECOND), "keys has not got"),
        ((*ONCE, "sent single 2 2", "failed single 2 2 Timeout"), "failed single 2 2 Timeout"),
        ((*ONCE, "trouble keys single AlreadyClosed"), "trouble keys single AlreadyClosed"),
        ((*ONCE, ONCE[2]), ONCE[2]),
        ((*ONCE, *OTHER), "were confirmed at 7:0:0"),
    ],
)
def test_each_violation_is_found(lines: tuple[str, ...], finding: str) -> None:
    findings = judged(*lines).findings()
    assert len(findings) == 1
    assert finding in findings[0]


def test_a_later_key_may_come_first() -> None:
    lines = ("received alone single 2 42 7:3:0", "received alone single 1 21 7:1:0")
    assert judged(*ONCE, *lines).findings() == []
