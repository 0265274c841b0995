"""Reader: one cursor, as the cache knows it: its name, its number within the topic, and what its reads met."""

from __future__ import annotations

from broker.entry_cache.cache_stats import ReadStats


class Reader:
    __slots__ = ("name", "number", "reads", "who")

    def __init__(self, name: str, number: int) -> None:
        """Made by `EntryCache.reader`."""
        self.name = name
        self.who = (name,)
        """The name once more, in the form in which events hold names."""
        self.number = number
        """From 1 within its topic, for the life of the topic's cache. 0 stands for nobody."""
        self.reads = ReadStats()
