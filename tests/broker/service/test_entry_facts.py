"""entry_facts: metadata is parsed once, whatever its bytes are."""

from __future__ import annotations

import pytest

from broker.service import entry_facts
from broker.service.entry_facts import facts_of, messages_left, messages_of
from foundation.model.entry import Entry
from tests.fakes.messages import message


def entry_of(body: bytes) -> Entry:
    return Entry(1, 2, b"", body, 0)


def test_entry_keeps_its_facts_for_the_next_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of(message(b"x", batch=3))
    facts = facts_of(entry)
    monkeypatch.delattr(entry_facts, "read_facts")
    assert facts_of(entry) is facts is not None
    assert messages_of(entry) == facts.messages == 3


def test_count_is_read_without_the_other_facts() -> None:
    entry = entry_of(message(b"x", batch=7))
    assert messages_of(entry) == entry.messages == 7
    assert entry.facts is None


def test_unreadable_entry_counts_as_one_message() -> None:
    entry = entry_of(b"\xff" * 20)
    assert facts_of(entry) is None
    assert messages_of(entry) == 1


@pytest.mark.parametrize(
    ("words", "left"), [([], 0), ([0b101], 2), ([-1], 64), ([-1, 1], 65), ([-(2**63)], 1)]
)
def test_words_of_an_ack_set_may_be_negative(words: list[int], left: int) -> None:
    assert messages_left(words) == left
