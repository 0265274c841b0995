"""The dormant topics of a broker that has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from broker.service.topics.dormant_topics import DormantTopics


class _None:
    count = backlog = size_bytes = subscriptions = 0
    filling = False
    levels: Final[Mapping[str, tuple[int, int]]] = {}

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def last_changes(self) -> dict[str, int]:
        return {}

    def get(self, name: str) -> None:
        return None


NONE_DORMANT = cast("DormantTopics", _None())
