"""DormantRecords: every record is found, and a walk over names goes on while records come and go."""

from __future__ import annotations

import gc

import pytest

from broker.service.topics import dormant_topics
from broker.service.topics.dormant_topic import NOT_KNOWN, DormantTopic
from broker.service.topics.dormant_topics import DormantRecords


def record() -> DormantTopic:
    return DormantTopic(None, (), 0, 0, 0, 0, 0, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, None)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> DormantRecords:
    monkeypatch.setattr(dormant_topics, "SHELF_MAX", 10)
    found = DormantRecords()
    for number in range(500):
        found.add(f"topic-{number}", record())
    return found


def test_records_of_all_shelves_are_found_named_and_removed(records: DormantRecords) -> None:
    names = [f"topic-{number}" for number in range(500)]
    assert sorted(records.names()) == sorted(names)
    assert records.count == 500
    assert all(records.get(name) is not None for name in names)
    assert records.get("another") is records.pop("another") is None
    for name in names:
        one = records.get(name)
        assert records.pop(name) is one
        assert records.get(name) is None
    assert (records.count, list(records.names())) == (0, [])


def test_names_that_stay_come_once_while_others_come_and_go(records: DormantRecords) -> None:
    seen: list[str] = []
    for number, name in enumerate(records.names()):
        seen.append(name)
        if number % 3 == 0:
            records.pop(name)
            records.add(f"new-{number}", record())
    stayed = {name for name in records.names() if name.startswith("topic")}
    assert len(seen) == len(set(seen))
    assert stayed <= set(seen)


def test_walk_copies_no_more_than_a_shelf(records: DormantRecords) -> None:
    before = {id(one) for one in gc.get_objects()}
    names = records.names()
    next(names)
    copies = [one for one in gc.get_objects() if id(one) not in before and isinstance(one, list)]
    assert max(map(len, copies)) <= 50, "the collector would look at each name of a longer list"
