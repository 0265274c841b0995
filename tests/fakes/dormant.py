"""The dormant topics of a broker that has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from broker.service.topics.dormant_topics import DormantTopics


class _None:
    count = backlog = size_bytes = subscriptions = 0
    filling = False

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def get(self, name: str) -> None:
        return None


NONE_DORMANT = cast("DormantTopics", _None())
