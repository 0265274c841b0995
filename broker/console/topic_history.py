"""The last hour of topics that pages show: sampled from the first request for a topic until an hour after the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.console.samples import TOPIC_HISTORY, History, Rates
from broker.console.traffic import SUMMED, counts_of
from broker.service.topics.topic import Topic
from foundation.value import Json

TOPICS_MAX: Final = 32
"""Topics that are sampled, the last ones that pages showed: 4 MB of samples."""
KEPT_NS: Final = 3_600_000_000_000
"""Time after the last check for which a topic is sampled."""


@dataclass(slots=True)
class _Followed:
    since_ms: int
    looked_ns: int
    rates: Rates = field(default_factory=Rates)
    history: History = field(default_factory=lambda: History(TOPIC_HISTORY))


class TopicHistories:
    """Samples topics every ten seconds. A topic that no page shows costs nothing."""

    def __init__(
        self, topics: Mapping[str, Topic], now_ns: Callable[[], int], wall_ms: Callable[[], int]
    ) -> None:
        """`topics` are the open ones, by name; `now_ns` is the monotonic clock."""
        self._topics = topics
        self._now_ns = now_ns
        self._wall_ms = wall_ms
        # The topic that was looked at last is the last one.
        self._followed: dict[str, _Followed] = {}

    def look(self, name: str) -> None:
        """Notes that a page shows the topic; its sampling begins with the first check."""
        followed = self._followed.pop(name, None) or _Followed(self._wall_ms(), 0)
        followed.looked_ns = self._now_ns()
        self._followed[name] = followed
        if len(self._followed) > TOPICS_MAX:
            del self._followed[next(iter(self._followed))]

    def shown(self, name: str) -> dict[str, Json]:
        """Returns the history of a topic that was looked at, in the form of the event `history`, and its begin."""
        followed = self._followed[name]
        return {"sinceMs": followed.since_ms, **followed.history.shown()}

    def newest_ten(self, name: str) -> list[Json]:
        """Returns the newest row of ten seconds of a topic that was looked at; [] before the first one."""
        return self._followed[name].history.newest_ten

    def sample(self) -> None:
        """Samples all topics that pages showed within the last hour; called every ten seconds."""
        now_ns = self._now_ns()
        for name, followed in [*self._followed.items()]:
            topic = self._topics.get(name)
            if now_ns - followed.looked_ns > KEPT_NS:
                del self._followed[name]
            elif topic is not None and not topic.closed:
                rates = followed.rates.rates(now_ns, counts_of(topic))
                followed.history.add_ten(
                    {"atMs": self._wall_ms(), **rates, "backlog": SUMMED["backlog"](topic)}
                )
