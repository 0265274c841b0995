"""The newest evictions are kept, and all are counted."""

from __future__ import annotations

from broker.service.subscriptions.backlog.evictions import KEPT, QuotaEviction, QuotaEvictions
from foundation.model.position import Position


def test_evictions_are_counted_by_type_and_the_newest_are_kept() -> None:
    evictions = QuotaEvictions()
    for number in range(KEPT + 5):
        kind = "message_age" if number % 2 else "destination_storage"
        evictions.add(QuotaEviction(number, "s", kind, 10, Position(5, 0), Position(5, 3), 3))
    assert evictions.times == {"destination_storage": 53, "message_age": 52}
    assert evictions.entries.total() == 3 * (KEPT + 5)
    assert [one.at_ms for one in evictions.newest] == list(range(5, KEPT + 5))
